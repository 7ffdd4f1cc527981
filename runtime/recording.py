"""What a recorder measured, and the same beside what a plan predicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from runtime.fsdp.strategies import plan_document
from runtime.ranks import LaunchError
from runtime.record_memory import MemoryUse
from runtime.record_traffic import RecordedTraffic

Unit = Literal["bytes", "s", "messages"]

_BYTES = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


@dataclass(frozen=True, slots=True)
class Recording:
    """Memory, traffic and time of one optimizer step. `print(recording)` shows it as a table."""

    memory: MemoryUse
    """Of this rank, or of the fullest."""
    traffic: tuple[RecordedTraffic, ...]
    """What this rank, or the first, sent in one steady step: bytes and counts by operation and group."""
    step_s: float | None
    """Median seconds of steps in which nothing was recorded, of this rank, or of the slowest; None: there were none."""
    world_size: int
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Returns one JSON document with the keys of `measured` in `shardplan run --json`; SI units."""
        return json.dumps(self._document(), indent=2) + "\n"

    def compare(self, plan: Mapping[str, Any] | str | Path) -> Comparison:
        """Returns what a plan predicted beside what was measured.

        Args:
            plan: Its folder, its `plan.json`, or what is in that.

        Raises:
            LaunchError: It is no plan, or one for another number of ranks.
        """
        document = plan_document(plan)
        try:
            planned, predicted = document["hardware"]["world_size"], document["predicted"]
            memory, step_s = predicted["memory"], predicted["step_s"]
            sent = [RecordedTraffic(*(row[key] for key in RecordedTraffic.__slots__)) for row in predicted["traffic"]]
            amounts = [memory[key] for key in ("peak_bytes", "at_rest_bytes", "init_peak_bytes")]
        except (KeyError, TypeError) as error:
            raise LaunchError(f"this is no plan ({error!r}): give plan.json or its folder") from error
        if planned != self.world_size:
            raise LaunchError(f"this plan is for {planned} ranks, and {self.world_size} were recorded")
        rows = [Compared("step time", "s", step_s, self.step_s)]
        for name, amount, measured in zip(_MEMORY, amounts, asdict(self.memory).values(), strict=True):
            rows.append(Compared(name, "bytes", amount, measured))
        return Comparison((*rows, *_compared_traffic(sent, self.traffic)), self.warnings)

    def __str__(self) -> str:
        rows = [("", "measured"), ("step time", _text("s", self.step_s))]
        rows += [(name, _text("bytes", size)) for name, size in zip(_MEMORY, asdict(self.memory).values(), strict=True)]
        for row in self.traffic:
            rows.append((_operation(row), _text("bytes", row.bytes)))
            rows.append((_MESSAGES, _text("messages", row.count)))
        return "\n".join((_table(rows), *self.warnings))

    def _document(self) -> dict[str, Any]:
        return {
            "step_s": self.step_s,
            "memory": asdict(self.memory),
            "traffic": [asdict(row) for row in self.traffic],
            "world_size": self.world_size,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of a step."""

    name: str
    unit: Unit
    predicted: float | None
    """None: the plan knows of no such message."""
    measured: float | None
    """None: it was not measured, or no such message was sent."""

    @property
    def difference(self) -> float | None:
        """Measured over predicted, less 1; None where either is missing or nothing was predicted."""
        if self.measured is None or not self.predicted:
            return None
        return self.measured / self.predicted - 1

    @property
    def difference_text(self) -> str:
        """The difference in words: `exact`, `+1.3%`, `not predicted`, `not measured`."""
        if self.measured is None or self.predicted is None:
            return "not measured" if self.measured is None else "not predicted"
        if self.measured == self.predicted:
            return "exact"
        return "-" if self.difference is None else f"{self.difference:+.1%}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predicted beside measured, figure by figure. `print(comparison)` shows it as a table."""

    rows: tuple[Compared, ...]
    warnings: tuple[str, ...] = ()

    @property
    def traffic_is_exact(self) -> bool:
        """Whether every message that was sent was predicted, byte for byte, and the other way round."""
        return not any(row.predicted != row.measured for row in self.rows if _is_traffic(row))

    def differing(self, tolerance: float = 0.05) -> tuple[Compared, ...]:
        """Returns where they differ: memory by more than `tolerance` of what was predicted, traffic at all.

        Step times are left out: on a machine that does other things too, they differ from themselves.
        """
        return tuple(row for row in self.rows if _differs(row, tolerance))

    def __str__(self) -> str:
        rows = [("", "predicted", "measured", "difference")]
        for row in self.rows:
            predicted, measured = _text(row.unit, row.predicted), _text(row.unit, row.measured)
            rows.append((row.name, predicted, measured, row.difference_text))
        return "\n".join((_table(rows), *self.warnings))


_MEMORY = ("peak memory", "memory at rest", "peak while building")
"""The fields of `MemoryUse` in words."""
_MESSAGES = "  messages"


def _differs(row: Compared, tolerance: float) -> bool:
    if _is_traffic(row):
        return row.predicted != row.measured
    return row.unit == "bytes" and row.difference is not None and abs(row.difference) > tolerance


def _is_traffic(row: Compared) -> bool:
    return row.unit == "messages" or (row.unit == "bytes" and row.name not in _MEMORY)


def _compared_traffic(predicted: Sequence[RecordedTraffic], measured: Sequence[RecordedTraffic]) -> list[Compared]:
    expected = {(row.operation, row.degree_from, row.degree_to): row for row in predicted}
    sent = {(row.operation, row.degree_from, row.degree_to): row for row in measured}
    rows = []
    for key in sorted({**expected, **sent}):
        left, right = expected.get(key), sent.get(key)
        name = _operation(left or right)
        rows.append(Compared(name, "bytes", left.bytes if left else None, right.bytes if right else None))
        rows.append(Compared(_MESSAGES, "messages", left.count if left else None, right.count if right else None))
    return rows


def _operation(row: RecordedTraffic | None) -> str:
    assert row is not None
    group = f"over {row.degree_to}" if row.degree_from == 1 else f"between {row.degree_from} and {row.degree_to}"
    return f"{row.operation.replace('_', '-')} {group}"


def _text(unit: Unit, amount: float | None) -> str:
    if amount is None:
        return "-"
    if unit == "s":
        return f"{amount * 1e3:,.1f} ms"
    if unit == "messages":
        return f"{amount:,.0f}"
    name, size = next(((name, size) for name, size in _BYTES if amount >= size), ("B", 1))
    return f"{amount / size:,.2f} {name}" if size > 1 else f"{amount:,.0f} B"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            (first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True)))
        ).rstrip()
        for first, *cells in rows
    )
