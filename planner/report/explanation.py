"""Formulas with their numbers, and two plans beside each other, for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.explanation import Comparison, Difference, Explanation, Line
from planner.report.figures import bytes_text, bytes_unit, difference_text, seconds_text, seconds_unit

TOTALS = ("step", "peak")


def explanation_page(explanation: Explanation) -> RenderableType:
    """Returns each figure with its formula, then the formula with numbers."""
    parts: list[RenderableType] = []
    for section in explanation.sections:
        parts.append(Text(("\n" if parts else "") + section.title, style="bold"))
        parts += [Padding(_line(line), (0, 0, 0, 2)) for line in section.lines]
    return Group(*parts)


def _line(line: Line) -> RenderableType:
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(width=26, style="cyan")
    grid.add_column(ratio=1)
    text = Text(_value(line.value, line.unit), style="bold")
    if line.formula:
        text.append(f"  = {line.formula}", style="not bold default")
    if line.substituted:
        text.append(f"  = {line.substituted}", style="not bold dim")
    grid.add_row(line.name, text)
    return grid


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
        ("Memory at the peak", comparison.memory),
        ("Traffic per rank and step", comparison.traffic),
    ):
        parts += [Text(f"\n{name}", style="bold"), _differences(rows)]
    return Group(*parts)


def _differences(rows: Sequence[Difference]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("this plan", "the other", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    largest = max((max(row.chosen, row.other) for row in rows), default=0.0)
    for row in rows:
        unit = bytes_unit(largest) if row.unit == "bytes" else seconds_unit(largest)
        difference = "same" if row.chosen == row.other else difference_text(row.other, row.chosen)
        style = "bold" if row.name in TOTALS else ""
        table.add_row(row.name, unit.text(row.chosen), unit.text(row.other), difference, style=style)
    return table
