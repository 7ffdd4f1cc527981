"""What memory buys: the points of a Pareto front as a table and as a plot of characters."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.plan import ParetoPoint, Plan
from planner.report.figures import bytes_in, bytes_unit, seconds_in, seconds_unit
from planner.report.names import degrees_names, degrees_text
from planner.report.scatter import Mark, Scatter

CHOSEN, FITS, BEYOND = "*", "o", "x"
_MEANING = {CHOSEN: "chosen", FITS: "fits", BEYOND: "beyond the budget"}
_STYLES = {CHOSEN: "bold green", FITS: "", BEYOND: "dim"}


def pareto_page(plan: Plan, points: Sequence[ParetoPoint]) -> RenderableType:
    """Returns the points, the fastest first, and where they lie; each is marked as chosen, fitting or beyond."""
    marks = [_mark(plan, point) for point in points]
    return Group(
        Text("\nStep time against memory: no other choice is both faster and smaller", style="bold"),
        Padding(Group(_table(points, marks), Text(), _plot(plan, points, marks), Text(_legend(marks))), (0, 0, 0, 2)),
    )


def _mark(plan: Plan, point: ParetoPoint) -> str:
    if (point.strategies, point.micro_batch_size) == (plan.strategies, plan.job.micro_batch_size):
        return CHOSEN
    return FITS if point.peak_bytes <= plan.predicted.memory.budget_bytes else BEYOND


def _table(points: Sequence[ParetoPoint], marks: Sequence[str]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("strategy")
    table.add_column(degrees_names([each for point in points for each in point.strategies]))
    for name in ("micro", "recomputed", "step", "peak"):
        table.add_column(name, justify="right", no_wrap=True)
    time = seconds_unit(points[0].step_s)
    space = bytes_unit(points[0].peak_bytes)
    for mark, point in zip(marks, points, strict=True):
        table.add_row(
            mark,
            point.name,
            degrees_text(point.strategies),
            str(point.micro_batch_size),
            _recomputed(point),
            seconds_in(time, point.step_s),
            bytes_in(space, point.peak_bytes),
            style=_STYLES[mark],
        )
    return table


def _recomputed(point: ParetoPoint) -> str:
    """Returns how many blocks are recomputed, of how many."""
    numbers = {each.recompute: 0 for each in point.strategies}
    for each in point.strategies:
        numbers[each.recompute] += len(each.blocks)
    return f"{numbers.get('full', 0)} of {sum(numbers.values())}"


def _plot(plan: Plan, points: Sequence[ParetoPoint], marks: Sequence[str]) -> RenderableType:
    budget_bytes = plan.predicted.memory.budget_bytes
    space = bytes_unit(max(points[0].peak_bytes, budget_bytes))
    time = seconds_unit(points[-1].step_s)
    return Scatter(
        marks=tuple(
            Mark(point.peak_bytes, point.step_s, mark, _STYLES[mark])
            for mark, point in sorted(zip(marks, points, strict=True), key=lambda pair: pair[0] == CHOSEN)
        ),
        wall=budget_bytes,
        across=lambda num_bytes: bytes_in(space, num_bytes),
        upward=lambda seconds: seconds_in(time, seconds),
    )


def _legend(marks: Sequence[str]) -> str:
    meanings = [f"{mark} {meaning}" for mark, meaning in _MEANING.items() if mark in marks]
    return "   ".join([*meanings, ": the budget"]) + "   (log axes)"
