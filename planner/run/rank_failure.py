"""Finds which rank made a run fail, and its last lines."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NUM_LAST_LINES = 12
_NOISE = re.compile(r"WARNING|FutureWarning|UserWarning|return func\(|^\s*$")
_SUMMARY = re.compile(r"rank\s+: (\d+) \(local_rank: \d+\)\n\s+exitcode\s+: (-?\d+)")


@dataclass(frozen=True, slots=True)
class RankFailure:
    """What ended a run."""

    rank: int | None
    """None when no rank is known to have failed: the launcher itself did."""
    reason: str
    last_lines: tuple[str, ...]
    is_usage: bool
    """Whether the user has to mend something, and nothing broke."""


def find_failure(logs: Path) -> RankFailure:
    """Returns the failure that came first.

    A rank that a signal ended is the first cause: when one is killed, the others fail with broken connections at the
    same moment. Otherwise it is the earliest exception that a rank noted.

    Args:
        logs: The folder with `launcher.log`, `failure-RANK.json` and torchrun's logs of each rank.
    """
    launcher = _text(logs / "launcher.log")
    for rank_text, code_text in _SUMMARY.findall(launcher):
        code = int(code_text)
        if code < 0 and code != -signal.SIGTERM:  # torchrun itself ends the others by SIGTERM
            return RankFailure(int(rank_text), _signal_text(-code), _last_lines(logs, int(rank_text)), False)
    noted = sorted(_noted(logs), key=lambda failure: (not failure["usage"], failure["time"], failure["rank"]))
    if noted:
        first = noted[0]
        lines = () if first["usage"] else _tail(first["trace"])
        return RankFailure(first["rank"], first["message"], lines, first["usage"])
    for rank_text, code_text in _SUMMARY.findall(launcher):
        return RankFailure(int(rank_text), f"exit code {code_text}", _last_lines(logs, int(rank_text)), False)
    return RankFailure(None, "the launcher failed", _tail(launcher), False)


def _noted(logs: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(logs.glob("failure-*.json"))]


def _signal_text(number: int) -> str:
    name = signal.Signals(number).name
    memory = "; the host may have run out of memory" if number == signal.SIGKILL else ""
    return f"ended by signal {number} ({name}){memory}"


def _last_lines(logs: Path, rank: int) -> tuple[str, ...]:
    files = sorted(logs.glob(f"*/attempt_0/{rank}/std*.log"))
    return _tail("\n".join(_text(path) for path in files))


def _tail(text: str) -> tuple[str, ...]:
    lines = [line.rstrip() for line in text.splitlines() if not _NOISE.search(line)]
    return tuple(lines[-_NUM_LAST_LINES:])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
