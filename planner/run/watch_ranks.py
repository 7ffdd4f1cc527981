"""Starts a launcher with its ranks, follows their progress, and ends them all whatever happens."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_POLL_S = 0.05
_GRACE_S = 5.0
"""Seconds that the launcher has to end its ranks before they are killed."""
_PR_SET_PDEATHSIG = 1
"""Source: Linux, include/uapi/linux/prctl.h."""


class NoProgressError(Exception):
    """The ranks have said nothing for too long."""


def watch_ranks(
    command: Sequence[str],
    logs: Path,
    environment: Mapping[str, str],
    on_event: Callable[[dict[str, Any]], None],
    timeout_s: float,
) -> int:
    """Runs the command to its end and returns its exit code. No process of it is left, however this returns.

    Args:
        command: A launcher, such as torchrun; what it prints goes to `launcher.log` in `logs`.
        logs: Where the first rank writes `progress.jsonl`.
        environment: Of the launcher.
        on_event: Told of each line of progress.
        timeout_s: Longest time between two of them.

    Raises:
        NoProgressError: Nothing new within `timeout_s`.
    """
    with (logs / "launcher.log").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C comes here first, and not to all at once
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    try:
        return _follow(process, logs / "progress.jsonl", on_event, timeout_s)
    finally:
        _end(process)


def _follow(
    process: subprocess.Popen[bytes], progress: Path, on_event: Callable[[dict[str, Any]], None], timeout_s: float
) -> int:
    num_read_bytes = 0
    last = time.monotonic()
    while True:
        code = process.poll()
        events, num_read_bytes = _new_events(progress, num_read_bytes)
        for event in events:
            on_event(event)
        if code is not None:
            return code
        if events:
            last = time.monotonic()
        elif time.monotonic() - last > timeout_s:
            raise NoProgressError
        time.sleep(_POLL_S)


def _new_events(progress: Path, num_read_bytes: int) -> tuple[list[dict[str, Any]], int]:
    """Returns the whole lines written since, and where they end."""
    if not progress.exists():
        return [], num_read_bytes
    with progress.open("rb") as file:
        file.seek(num_read_bytes)
        whole = file.read().rpartition(b"\n")[0]
    if not whole:
        return [], num_read_bytes
    return [json.loads(line) for line in whole.splitlines()], num_read_bytes + len(whole) + 1


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the launcher and its ranks: politely, so that it ends them itself, then for good."""
    ranks = _descendants(process.pid)
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    if process.poll() is None:
        ranks = _descendants(process.pid)
        process.kill()
    for pid in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _descendants(pid: int) -> tuple[int, ...]:
    """Returns the processes below `pid` (Linux only; elsewhere a rank ends itself when its launcher is gone)."""
    found: list[int] = []
    for children in sorted(Path(f"/proc/{pid}/task").glob("*/children")):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return tuple(found)


def _end_with_parent() -> None:
    """Has the kernel end the launcher, and it its ranks, when this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
