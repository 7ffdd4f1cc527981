"""A finished run for people: the losses, and what was measured beside what was predicted."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.report.figures import bytes_text, difference_text, plural, seconds_text
from planner.report.names import operation_text
from planner.run.run_report import Figures, RunReport


def run_page(report: RunReport) -> RenderableType:
    """Returns predicted, measured and their difference: step time, memory, and traffic per operation."""
    predicted, measured = report.predicted, report.measured
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("predicted", "measured", "difference"):
        table.add_column(name, justify="right", no_wrap=True)

    for name, before, after, text in _rows(predicted, measured):
        table.add_row(name, text(before), text(after), difference_text(after, before))
    warnings = [Text.assemble(("\nwarning: ", "bold yellow"), text) for text in report.warnings]
    return Group(_losses(report), Text(""), table, *warnings)


def _losses(report: RunReport) -> RenderableType:
    title = Text(plural(len(report.steps), "step"), style="bold green")
    if report.steps:
        first, last = report.steps[0].loss, report.steps[-1].loss
        title.append(f"  loss {first:.4f} → {last:.4f}", style="not bold default")
        if not all(math.isfinite(step.loss) for step in report.steps):
            title.append("  not finite in every step", style="bold red")
    return title


def _rows(predicted: Figures, measured: Figures) -> list[tuple[str, float, float, Callable[[float], str]]]:
    """Name, predicted and measured figure, and how it is written."""
    rows: list[tuple[str, float, float, Callable[[float], str]]] = [
        ("step time", predicted.step_s, measured.step_s, seconds_text),
        ("peak memory", predicted.memory.peak_bytes, measured.memory.peak_bytes, bytes_text),
        ("memory at rest", predicted.memory.at_rest_bytes, measured.memory.at_rest_bytes, bytes_text),
        ("peak while building", predicted.memory.init_peak_bytes, measured.memory.init_peak_bytes, bytes_text),
    ]
    before, after = _traffic(predicted), _traffic(measured)
    for key in sorted({*before, *after}):
        sent, recorded = before.get(key, (0, 0)), after.get(key, (0, 0))
        rows.append((operation_text(*key), sent[0], recorded[0], bytes_text))
        rows.append(("  messages", sent[1], recorded[1], "{:,.0f}".format))
    return rows


def _traffic(figures: Figures) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Bytes and count of each kind of message."""
    return {(row.operation, row.degree_from, row.degree_to): (row.bytes, row.count) for row in figures.traffic}
