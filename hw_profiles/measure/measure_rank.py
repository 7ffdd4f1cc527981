"""One rank's part of measuring a machine, and the program that is started for each rank."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import torch.distributed as dist

from hw_profiles.errors import ProfileError
from hw_profiles.measure.asked import Asked
from hw_profiles.measure.ending import FAILED, USAGE, Ending
from hw_profiles.measure.measure_all import measure_all
from hw_profiles.measure.ranks import Lost, first_line, meet, start
from hw_profiles.measure.roll_call import RollCall
from hw_profiles.measure.run_ranks import MEASUREMENT, REPORT

_LAST_LINES = 8
_OF_OTHERS = ("gloo", "NCCL", "ncclRemoteError", "Connection")
"""Words in the errors with which torch's process groups report others' failure."""


def main() -> None:
    """Measures as one rank: the arguments are what is asked for, as JSON, and the folder for what is found."""
    asked, folder = Asked.model_validate_json(sys.argv[1]), Path(sys.argv[2])
    # Whoever started this process ends it: Ctrl-C, and torchrun's signal when another rank has failed, reach both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The log is for errors; torch renames its collectives from one version to the next.
    warnings.simplefilter("ignore", FutureWarning)
    rank = int(os.environ["RANK"])
    roll: RollCall | None = None
    try:
        roll, store = meet(asked)
        _watch(roll, asked, rank, folder)
        _prepare_nccl(rank, folder)
        ranks = start(asked, roll, store)
        found = measure_all(asked, ranks, _say if rank == 0 else _silent)
        if rank == 0:
            (folder / MEASUREMENT).write_text(found.model_dump_json())
        ranks.together()
    except Exception as error:
        traceback.print_exc()  # into this rank's log
        _leave(_end(error, roll, rank, folder))
    _leave(0)


def _leave(code: int) -> None:
    """Ends this process at once.

    With several gloo groups, torch 2.13 now and then aborts in the destructors that a normal exit runs ("terminate
    called without an active exception").
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _watch(roll: RollCall, asked: Asked, rank: int, folder: Path) -> None:
    """Ends this rank when its main thread hangs in a call that has no time limit of its own, as NCCL's do."""
    # All that has a limit ends by it first.
    after_s = 2 * asked.patience_s + 10

    def end(reason: str) -> None:
        _leave(_end(Lost(reason), roll, rank, folder))

    roll.when_hung(after_s, end)


def _prepare_nccl(rank: int, folder: Path) -> None:
    """Sets NCCL's variables before it is loaded; those that the user has set stay."""
    # The log says which transport it took.
    os.environ.setdefault("NCCL_DEBUG", "INFO")
    os.environ.setdefault("NCCL_DEBUG_FILE", str(folder / f"nccl-{rank}.log"))
    # torch would end the process without a word when a message does not come; `Ranks.finish` finds out by itself.
    # Source: torch 2.13, ProcessGroupNCCL.hpp, ErrorHandlingMode.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")


def _say(text: str, part: float | None) -> None:
    print(json.dumps({"text": text, "part": part}), flush=True)  # noqa: T201 - the parent process reads it


def _silent(_text: str, _part: float | None) -> None:
    pass


def _end(error: Exception, roll: RollCall | None, rank: int, folder: Path) -> int:
    """Finds out what became of the other ranks, writes the report, and returns the exit code."""
    is_usage = isinstance(error, ProfileError)
    lost = is_of_others(error)
    text = str(error) if is_usage else _seen(error) if lost else _own_text(error)
    if roll is None:
        ended, speaks = Ending(f"rank {rank}: {text}", FAILED, (rank,)), rank == 0
    elif lost:
        ended, speaks = roll.call(lost=text)
    else:
        ended, speaks = roll.call(text, is_usage=is_usage)
    report = {"message": ended.message, "exit_code": ended.exit_code, "ranks": list(ended.ranks), "speaks": speaks}
    draft = Path(tempfile.mkstemp(dir=folder)[1])
    draft.write_text(json.dumps(report))
    draft.replace(folder / REPORT.format(rank=rank))
    return USAGE if ended.exit_code == USAGE else FAILED


def _seen(error: Exception) -> str:
    return first_line(error) if str(error) else ""


def is_of_others(error: Exception) -> bool:
    """Tells whether an error only reports that other ranks, or messages of theirs, are gone."""
    if isinstance(error, (Lost, dist.DistError)):
        return True
    return type(error) is RuntimeError and any(word in str(error) for word in _OF_OTHERS)


def _own_text(error: Exception) -> str:
    lines = traceback.format_exception(error)[-1].strip().splitlines()[:_LAST_LINES]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return "\n  ".join([*lines, f"({Path(place.filename).name}, line {place.lineno})"])


if __name__ == "__main__":
    main()
