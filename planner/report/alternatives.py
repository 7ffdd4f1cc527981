"""The table of alternatives: what else there was, what it would have cost, and why it was not chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from planner.plan import Alternative, Plan
from planner.report.figures import bytes_in, bytes_unit, plural, seconds_in, seconds_unit
from planner.report.names import degrees_names, degrees_text

NUM_SHOWN = 5
_NUM_WORDS = 2


def runner_up(plan: Plan) -> Alternative | None:
    """Returns the fastest alternative of the plan's engine that fits and is not the plan itself."""
    fitting = [
        other
        for other in plan.alternatives
        if other.engine == plan.engine and _fits(plan, other) and other.strategies != plan.strategies
    ]
    return min(fitting, key=lambda other: other.step_s, default=None)


def best_of_other(plan: Plan) -> Alternative | None:
    """Returns the fastest alternative of the other engine that fits: what that would have given."""
    fitting = [other for other in plan.alternatives if other.engine != plan.engine and _fits(plan, other)]
    return min(fitting, key=lambda other: other.step_s, default=None)


def _fits(plan: Plan, other: Alternative) -> bool:
    return other.peak_bytes <= plan.predicted.memory.budget_bytes


def _order(plan: Plan, other: Alternative) -> tuple[bool, bool, float]:
    return (other.peak_bytes > plan.predicted.memory.budget_bytes, other.engine != plan.engine, other.step_s)


def alternatives_table(plan: Plan, *, every: bool) -> RenderableType:
    """Returns the alternatives: what fits first, of it the plan's engine first, then by time.

    Unless `every`, a few of them, the last of which is the best of the other engine.

    A verdict has a line of its own beneath its row: beside it, no room is left on a narrow screen.
    """
    ordered = sorted(plan.alternatives, key=lambda other: _order(plan, other))
    shown = ordered if every else _first(plan, ordered)
    lines: list[RenderableType] = []
    header, *rows = _aligned(_cells(plan, shown))
    lines.append(Text(header, style="dim", no_wrap=True, overflow="ellipsis"))
    for other, row in zip(shown, rows, strict=True):
        style = "bold green" if other.verdict.startswith("chosen") else ""
        lines.append(Text(row, style=style, no_wrap=True, overflow="ellipsis"))
        texts = (other.verdict, *_by_class(other))
        lines += [Padding(Text(text, style=style or "dim"), (0, 0, 0, 2)) for text in texts]
    if hidden := len(ordered) - len(shown):
        lines.append(Text(f"{hidden} more with --verbose", style="dim"))
    return Group(*lines)


def _first(plan: Plan, ordered: Sequence[Alternative]) -> list[Alternative]:
    """Returns the first few, and the best of each other engine in any case: what it would have given."""
    fitting = [other for other in ordered if other.peak_bytes <= plan.predicted.memory.budget_bytes]
    best = {other.engine: other for other in reversed(fitting) if other.engine != plan.engine}
    others = list(best.values())
    return [other for other in ordered if other not in others][: NUM_SHOWN - len(others)] + others


def _by_class(other: Alternative) -> Iterator[str]:
    """Yields what its blocks have where that is not the same for all: how many of them, and their degrees."""
    if _is_uniform(other):
        return
    parts: dict[str, int] = {}
    for each in other.strategies:
        text = degrees_text([each]) + (" recomputed" if each.recompute == "full" else "")
        parts[text] = parts.get(text, 0) + len(each.blocks)
    names = degrees_names(other.strategies)
    yield f"by class, ({names}): " + "; ".join(f"{plural(count, 'block')} ({text})" for text, count in parts.items())


def _is_uniform(other: Alternative) -> bool:
    return len({degrees_text([each]) for each in other.strategies}) == 1


def _cells(plan: Plan, shown: Sequence[Alternative]) -> list[tuple[str, ...]]:
    """The names of the columns, then each alternative, in the units of the plan's own figures."""
    memory = plan.predicted.memory
    beyond = any(other.peak_bytes > memory.budget_bytes for other in shown)
    time, space = seconds_unit(plan.predicted.step_s), bytes_unit(memory.budget_bytes if beyond else memory.peak_bytes)
    degrees = degrees_names([strategy for other in shown if _is_uniform(other) for strategy in other.strategies])
    cells: list[tuple[str, ...]] = [("strategy", degrees, "micro", "step", "peak")]
    for other in shown:
        micro, peak = str(other.micro_batch_size), bytes_in(space, other.peak_bytes)
        own = degrees_text(other.strategies) if _is_uniform(other) else "by class"
        cells.append((other.name, own, micro, seconds_in(time, other.step_s), peak))
    return cells


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < _NUM_WORDS else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
