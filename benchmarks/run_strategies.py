"""One rank that runs emitted plans one after the other: what `accuracy_and_regret.py` starts under torchrun.

    torchrun ... benchmarks/run_strategies.py FOLDERS.json --steps 5 --timeout 300

FOLDERS.json lists folders that `shardplan plan --out` or `estimate --out` wrote. Each is run as its `launch.py` would,
in a process of its own with a process group of its own; it is forked from this one, which has imported torch and
DeepSpeed, so that a run starts in a second. The first rank leaves the report in each folder as `measured.json`, or with
`--time-only`, which records neither memory nor messages, as `timed.json`; a rank that fails leaves `failed-RANK.txt`.
With `--plain`, plans of the fsdp engine are trained by PyTorch's `fully_shard` alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import deepspeed  # noqa: F401 - imported once for all that are forked
import torch.distributed.fsdp  # noqa: F401 - likewise
from plain_fully_shard import plain_engine

import runtime.launch
import runtime.sharded_engine


def main() -> None:
    """Runs all folders; those that fail or take too long are passed over."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", type=Path)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that one of them may take")
    parser.add_argument("--time-only", action="store_true")
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    arguments = ["--steps", str(given.steps), *(() if given.time_only else ("--record",))]
    report = "timed.json" if given.time_only else "measured.json"
    if given.plain:
        runtime.sharded_engine.sharded_engine = plain_engine  # type: ignore[assignment]
    for number, name in enumerate(json.loads(given.folders.read_text())):
        folder = Path(name)
        _run(folder, number, [*arguments, "--report", str(folder / report)], given.timeout)


def _run(folder: Path, number: int, arguments: list[str], timeout_s: float) -> None:
    child = os.fork()
    if child == 0:
        _train(folder, number, arguments)
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    _note(folder, f"did not end within {timeout_s:g} s")


def _train(folder: Path, number: int, arguments: list[str]) -> None:
    """Never returns."""
    # torchrun's own store serves the one process group that it knows of.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1 + number)
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process
    code = 1
    try:
        code = runtime.launch.main(folder, arguments)
    except BaseException:
        _note(folder, traceback.format_exc())
    finally:
        os._exit(code)


def _note(folder: Path, text: str) -> None:
    (folder / f"failed-{os.environ['RANK']}.txt").write_text(text)


if __name__ == "__main__":
    main()
