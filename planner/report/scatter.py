"""A plot of marks in characters, memory across and time upward, both on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

_MOST_COLUMNS, _LEAST_COLUMNS, _NUM_ROWS = 76, 30, 12


@dataclass(frozen=True, slots=True)
class Mark:
    """One character at a place; both amounts are positive."""

    across: float
    upward: float
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Marks, each drawn over those before it, and a wall of colons at an amount across; plain ASCII."""

    marks: tuple[Mark, ...]
    wall: float
    across: Callable[[float], str]
    """Writes an amount across, for the two ends of the axis."""
    upward: Callable[[float], str]
    """Writes an amount upward, for the two ends of the axis."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the rows from above, each after its label, then the axis across with the amounts of its ends."""
        left, right = _ends([self.wall, *(mark.across for mark in self.marks)])
        bottom, top = _ends([mark.upward for mark in self.marks])
        labels = {0: self.upward(top), _NUM_ROWS - 1: self.upward(bottom)}
        indent = max(map(len, labels.values()))
        width = min(options.max_width, _MOST_COLUMNS) - indent - 2
        rows = [[(" ", "")] * width for _ in range(_NUM_ROWS)]
        for row in rows:
            row[_place(self.wall, left, right, width)] = (":", "dim")
        for mark in self.marks:
            height = _NUM_ROWS - 1 - _place(mark.upward, bottom, top, _NUM_ROWS)
            rows[height][_place(mark.across, left, right, width)] = (mark.text, mark.style)
        for number, row in enumerate(rows):
            yield Segment(f"{labels.get(number, ''):>{indent}} |")
            yield from (Segment(text, Style.parse(style)) for text, style in row)
            yield Segment.line()
        yield Segment(f"{'':{indent}} +{'-' * width}\n")
        first, last = self.across(left), self.across(right)
        yield Segment(f"{'':{indent}}  {first}{last:>{max(0, width - len(first))}}\n")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Returns: at least what shows anything, at most what a narrow screen has."""
        most = min(_MOST_COLUMNS, options.max_width)
        return Measurement(min(_LEAST_COLUMNS, most), most)


def _ends(amounts: list[float]) -> tuple[float, float]:
    return min(amounts), max(amounts)


def _place(amount: float, least: float, most: float, num: int) -> int:
    """Returns which of `num` cells holds an amount, by its logarithm; the first where all amounts are one."""
    if most <= least:
        return 0
    return round((num - 1) * math.log(amount / least) / math.log(most / least))
