"""Starts ranks of a measurement on this machine, follows them, and says who failed."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from hw_profiles.errors import ProfileError, RanksFailed
from hw_profiles.measure.asked import Asked
from hw_profiles.measure.host_facts import is_stopped
from hw_profiles.measure.measurement import Measurement

MEASUREMENT, REPORT = "measurement.json", "report-{rank}.json"
"""Files in the folder of a measurement: what was measured, and how a rank ended that did not end well."""
Progress = Callable[[str, float | None], None]
"""Called with what is measured next and which part of all is done; with None, the text is a note to be kept."""

_POLL_S = 0.1
_LAST_LINES = 12
_TERMINATED = 128 + signal.SIGTERM
_LEAVING_S = 12.0
"""How long a rank that is told to end may look for the rank that failed: twice the roll call's time."""


@dataclass(frozen=True, slots=True)
class _Rank:
    number: int
    process: subprocess.Popen[str]
    log: Path


def run_ranks(
    places: Sequence[Mapping[str, str]], asked: Asked, progress: Progress, *, is_alone: bool
) -> Measurement | None:
    """Runs a rank for each of `places` and returns what they measured, where the first rank is among them.

    Ends all of them when one fails, when this process is interrupted, or is told to end.

    Args:
        places: each rank's variables (RANK, WORLD_SIZE, MASTER_ADDR, ...).
        asked: what to measure.
        progress: called with what the first rank measures.
        is_alone: whether all ranks of the world are among them; else others are started elsewhere, and one of them may
            tell the user what failed.

    Raises:
        ProfileError: what is asked for cannot be measured.
        RanksFailed: a rank ended or hung.
        SystemExit: ranks failed, and another process tells the user.
    """
    with tempfile.TemporaryDirectory(prefix="shardplan-") as text, _told_to_end() as told:
        folder = Path(text)
        ranks = [_started(place, asked, folder) for place in places]
        try:
            failed = _follow(ranks, progress, told, asked.patience_s + _LEAVING_S)
            if failed is not None:
                _raise(failed, folder, asked, is_alone)
        finally:
            for rank in ranks:
                rank.process.kill()
                rank.process.wait()
                for pipe in (rank.process.stdout, rank.process.stdin):
                    if pipe is not None:
                        pipe.close()
        out = folder / MEASUREMENT
        return Measurement.model_validate_json(out.read_text()) if out.is_file() else None


def _started(place: Mapping[str, str], asked: Asked, folder: Path) -> _Rank:
    number = int(place["RANK"])
    log = folder / f"rank-{number}.log"
    # One thread per rank, as in training with a rank per core or more.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **place}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "hw_profiles.measure.measure_rank", asked.model_dump_json(), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if number == 0 else errors,
            stderr=errors,
            env=environment,
            text=True,
        )
    return _Rank(number, process, log)


def _follow(ranks: Sequence[_Rank], progress: Progress, told: list[float], most_stopped_s: float) -> _Rank | None:
    """Passes on what the first rank says until all ranks have ended; returns the first that ended badly, if one did."""
    stops = _Stops(ranks, most_stopped_s)
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            if rank.process.stdout is not None:
                selector.register(rank.process.stdout, selectors.EVENT_READ)
        while True:
            if selector.get_map():
                _pass_on(selector, progress)
            else:
                time.sleep(_POLL_S)
            bad = _ended_badly(ranks)
            if bad is not None or all(rank.process.returncode == 0 for rank in ranks):
                return bad
            if told and time.monotonic() - told[0] > _LEAVING_S:
                raise SystemExit(_TERMINATED)
            stops.look()


def _pass_on(selector: selectors.BaseSelector, progress: Progress) -> None:
    for key, _ in selector.select(_POLL_S):
        line = key.fileobj.readline()  # type: ignore[union-attr]
        if not line:
            selector.unregister(key.fileobj)
        elif line.startswith("{"):
            said = json.loads(line)
            progress(said["text"], said["part"])


def _ended_badly(ranks: Sequence[_Rank]) -> _Rank | None:
    """Returns a rank that was killed, else one that ended with an error: it may only have noticed the other."""
    codes = [rank.process.poll() or 0 for rank in ranks]
    killed = [rank for rank, code in zip(ranks, codes, strict=True) if code < 0]
    ended = [rank for rank, code in zip(ranks, codes, strict=True) if code > 0]
    return next(iter(killed + ended), None)


class _Stops:
    """Keeps an eye on ranks that are stopped (SIGSTOP, Ctrl-Z)."""

    def __init__(self, ranks: Sequence[_Rank], most_s: float) -> None:
        self._ranks, self._most_s = ranks, most_s
        self._last = time.monotonic()
        self._moving = [self._last] * len(ranks)

    def look(self) -> None:
        """Ends a rank that is stopped for longer than the others wait for it.

        The ranks stop with this process: where that was stopped itself, they are continued.
        """
        now = time.monotonic()
        was_stopped = now - self._last > 20 * _POLL_S
        self._last = now
        for index, rank in enumerate(self._ranks):
            if was_stopped:
                rank.process.send_signal(signal.SIGCONT)
            if was_stopped or not is_stopped(rank.process.pid):
                self._moving[index] = now
            elif now - self._moving[index] > self._most_s:
                rank.process.kill()


def _raise(failed: _Rank, folder: Path, asked: Asked, is_alone: bool) -> None:
    code = failed.process.returncode
    kept = ""
    if asked.journal and Path(asked.journal).is_file():
        kept = "\nWhat was measured so far is kept: the same command goes on from there"
    report = folder / REPORT.format(rank=failed.number)
    if report.is_file():
        told: dict[str, Any] = json.loads(report.read_text())
        if not is_alone and not told["speaks"]:
            raise SystemExit(told["exit_code"])
        if told["exit_code"] == 2:
            raise ProfileError(told["message"])
        raise RanksFailed(f"measuring failed: {told['message']}{kept}", tuple(told["ranks"]))
    lines = [line for line in failed.log.read_text(errors="replace").splitlines() if line.strip()][-_LAST_LINES:]
    if not is_alone and failed.number != 0 and not lines:
        raise SystemExit(5)
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    said = "; its last lines:\n  " + "\n  ".join(lines) if lines else ""
    raise RanksFailed(f"measuring failed: rank {failed.number} {how}{said}{kept}", (failed.number,))


@contextmanager
def _told_to_end() -> Iterator[list[float]]:
    """Yields a list that gets the time at which this process is told to end: the ranks may then still say why."""
    told: list[float] = []

    def note(_number: int, _frame: FrameType | None) -> None:
        told.append(time.monotonic())

    try:
        before = signal.signal(signal.SIGTERM, note)
    except ValueError:  # not in the main thread, which alone may
        yield told
        return
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, before)
