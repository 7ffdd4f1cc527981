"""Formulas with their numbers, and two plans beside each other, for people."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.explain.explanation import Comparison, Difference, Explanation, Line
from planner.report.figures import (
    bytes_in,
    bytes_text,
    bytes_unit,
    difference_text,
    seconds_in,
    seconds_text,
    seconds_unit,
)

TOTALS = ("step", "peak")
LEGEND = (
    "P: parameters; p, s, g, o: degrees; c_p, c_g, k: bytes per parameter of P, G and OS; M: micro-batches. "
    "Of a message: B: bytes; n: ranks of its group; r: of them in one unit of the level; u: units that it spans; "
    "q: groups that share a unit's links."
)
_NAME_WIDTH, _VALUE_WIDTH = 20, 10


def explanation_page(explanation: Explanation) -> RenderableType:
    """Returns each figure with its formula, then the formula with numbers."""
    parts: list[RenderableType] = []
    for section in explanation.sections:
        parts += [Text(("\n" if parts else "") + section.title, style="bold"), _lines(section.lines)]
    return Group(*parts, Text(f"\n{LEGEND}", style="dim"))


def _lines(lines: Sequence[Line]) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(min_width=_NAME_WIDTH, no_wrap=True, style="cyan")
    grid.add_column(min_width=_VALUE_WIDTH, no_wrap=True, justify="right", style="bold")
    grid.add_column(ratio=1)
    for line in lines:
        text = Text.assemble(*((f"= {line.formula}",) if line.formula else ()))
        if line.substituted:
            text.append(f"{chr(10) if line.formula else ''}= {line.substituted}", style="dim")
        grid.add_row(line.name, _value(line.value, line.unit), text)
    return Padding(grid, (0, 0, 0, 2))


def _value(value: float, unit: str) -> str:
    if unit == "bytes":
        return bytes_text(value)
    return (
        seconds_text(value)
        if unit == "s"
        else f"{value:,.4g} {unit}".rstrip()
        if value < 100
        else f"{value:,.0f} {unit}"
    )


def comparison_page(comparison: Comparison) -> RenderableType:
    """Returns the verdict, then time, memory and traffic of both."""
    title = Text.assemble("Why not ", (comparison.other_name, "bold"), f" in place of {comparison.chosen_name}?")
    parts: list[RenderableType] = [title, Text(comparison.verdict, style="bold green")]
    for name, rows in (
        ("Time of a step", comparison.time),
        (_moments(comparison), comparison.memory),
        ("Traffic per rank and step", comparison.traffic),
    ):
        parts += [Text(f"\n{name}", style="bold"), _differences(rows)]
    return Group(*parts)


def _moments(comparison: Comparison) -> str:
    mine, its = comparison.chosen_peak_phase, comparison.other_peak_phase
    return f"Memory at the peak, {mine}" if mine == its else f"Memory at the peak: {mine}; of the other: {its}"


def _differences(rows: Sequence[Difference]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("this plan", "the other", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    largest = max((max(row.chosen, row.other) for row in rows), default=0.0)
    time = seconds_unit(largest)
    for row in rows:
        text = partial(bytes_in, bytes_unit(largest)) if row.unit == "bytes" else partial(seconds_in, time)
        difference = "same" if row.chosen == row.other else difference_text(row.other, row.chosen)
        style = "bold" if row.name in TOTALS else ""
        table.add_row(row.name, text(row.chosen), text(row.other), difference, style=style)
    return table
