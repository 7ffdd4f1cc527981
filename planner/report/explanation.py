"""Formulas with their numbers, for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.explain.explanation import Explanation, Line
from planner.report.figures import bytes_text, seconds_text

LEGEND = (
    "P: parameters; p, s, g, o: degrees; c_p, c_g, k: bytes per parameter of P, G and OS; M: micro-batches. "
    "Of a message: B: bytes; n: ranks of its group; r: of them in one unit of the level; u: units that it spans; "
    "q: groups that share a unit's links. Of a segment: F: FLOP; B, B_F: bytes of its operators without and with FLOP; "
    "n: operators; f, w: FLOP and bytes per second; t: seconds per operator. u: bytes per parameter of an update."
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
