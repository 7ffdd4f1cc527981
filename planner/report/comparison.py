"""Two plans beside each other, for people: why one of them won."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.explain.explanation import AtMicroBatch, Comparison, Difference, MessageDifference, MessageFigures, Side
from planner.report.figures import (
    Unit,
    bytes_in,
    bytes_unit,
    difference_text,
    seconds_in,
    seconds_unit,
)
from planner.report.names import operation_text

_TOTALS = ("step", "peak")
_CHOSEN, _OTHER = "this plan", "the other"


def comparison_page(comparison: Comparison) -> RenderableType:
    """Returns the verdict, then time, memory and traffic of both, and the other at each micro-batch."""
    title = Text.assemble("Why not ", (comparison.other.name, "bold"), f" in place of {comparison.chosen.name}?")
    parts: list[RenderableType] = [title, Text(comparison.verdict, style="bold green")]
    parts += [Text(note) for note in comparison.notes]
    if comparison.would_fit:
        parts += _titled("What would fit", *(Text(f"- {each}") for each in comparison.would_fit))
    parts += _titled("Time of a step", _differences(comparison.time))
    parts += _titled(_moments(comparison), _differences(comparison.memory))
    parts += _titled("Traffic per rank and step", _traffic(comparison.traffic))
    if comparison.micro_batches:
        parts += _titled("The other at each micro-batch", _micro_batches(comparison.other, comparison.micro_batches))
    return Group(*parts)


def _titled(title: str, *content: RenderableType) -> list[RenderableType]:
    return [Text(f"\n{title}", style="bold"), *(Padding(part, (0, 0, 0, 2)) for part in content)]


def _moments(comparison: Comparison) -> str:
    mine, its = comparison.chosen.peak_phase, comparison.other.peak_phase
    return f"Memory at the peak, {mine}" if mine == its else f"Memory at the peak: {mine}; of the other: {its}"


def _differences(rows: Sequence[Difference]) -> RenderableType:
    table = _table("", _CHOSEN, _OTHER, "difference")
    largest = max((max(row.chosen, row.other) for row in rows), default=0.0)
    time = seconds_unit(largest)
    for row in rows:
        text = partial(bytes_in, bytes_unit(largest)) if row.unit == "bytes" else partial(seconds_in, time)
        difference = "same" if row.chosen == row.other else difference_text(row.other, row.chosen)
        style = "bold" if row.name in _TOTALS else ""
        table.add_row(row.name, text(row.chosen), text(row.other), difference, style=style)
    return table


def _traffic(rows: Sequence[MessageDifference]) -> RenderableType:
    """Each kind of message has a line of its own above what either plan sends: beside it, 80 columns are too few."""
    figures = [side for row in rows for side in (row.chosen, row.other) if side is not None]
    space = bytes_unit(max((each.bytes for each in figures), default=0))
    time = seconds_unit(max((max(each.seconds, each.exposed_s) for each in figures), default=0.0))
    cells = [("", "bytes", "messages", "busy", "exposed", "time is")]
    cells += [
        (f"  {name}", *_cells(side, space, time))
        for row in rows
        for name, side in ((_CHOSEN, row.chosen), (_OTHER, row.other))
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    header, *sent = [_aligned(row, widths) for row in cells]
    lines: list[RenderableType] = [Text(header, style="dim", no_wrap=True)]
    for row, mine, its in zip(rows, sent[::2], sent[1::2], strict=True):
        name = operation_text(row.operation, row.degree_from, row.degree_to)
        lines += [Text(name), *(Text(line, no_wrap=True) for line in (mine, its))]
    return Group(*lines)


def _cells(side: MessageFigures | None, space: Unit, time: Unit) -> tuple[str, str, str, str, str]:
    if side is None:
        return ("none", "", "", "", "")
    busy, exposed = seconds_in(time, side.seconds), seconds_in(time, side.exposed_s)
    return (bytes_in(space, side.bytes), f"{side.count:,}", busy, exposed, side.known)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The first and the last column are words, to the left; the others numbers, to the right."""
    first, *numbers, last = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in numbers), last[0]])


def _micro_batches(other: Side, rows: Sequence[AtMicroBatch]) -> RenderableType:
    table = _table("micro-batch", "recomputed", "step", "peak")
    table.add_column("", no_wrap=True)
    time = seconds_unit(max(row.step_s for row in rows))
    space = bytes_unit(other.budget_bytes)
    for row in rows:
        is_best = row.micro_batch_size == other.micro_batch_size
        table.add_row(
            f"{row.micro_batch_size:,} × {row.num_micro_batches:,}",
            f"{row.num_recomputed:,} of {other.num_blocks:,}",
            seconds_in(time, row.step_s),
            bytes_in(space, row.peak_bytes),
            "best" if is_best and row.fits else "least" if is_best else "" if row.fits else "does not fit",
            style="bold" if is_best else "",
        )
    return table


def _table(first: str, *others: str) -> Table:
    """Returns a table of words in its first column and of numbers in the others."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
