"""The table of alternatives: what else there was, what it would have cost, and why it was not chosen."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.plan import Alternative, Plan
from planner.report.figures import bytes_text, seconds_text
from planner.report.names import degrees_text

NUM_SHOWN = 5


def runner_up(plan: Plan) -> Alternative | None:
    """Returns the fastest alternative that fits, is not the plan itself and that the plan's engine has."""
    fitting = [other for other in plan.alternatives if _could_run(plan, other) and other.strategies != plan.strategies]
    return min(fitting, key=lambda other: other.step_s, default=None)


def _could_run(plan: Plan, other: Alternative) -> bool:
    return other.engine == plan.engine and other.peak_bytes <= plan.predicted.memory.budget_bytes


def _order(plan: Plan, other: Alternative) -> tuple[bool, bool, float]:
    return (other.peak_bytes > plan.predicted.memory.budget_bytes, other.engine != plan.engine, other.step_s)


def alternatives_table(plan: Plan, *, every: bool) -> RenderableType:
    """Returns the alternatives: what fits first, of it the plan's engine first, then by time; few unless `every`."""
    ordered = sorted(plan.alternatives, key=lambda other: _order(plan, other))
    shown = ordered if every else ordered[:NUM_SHOWN]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("strategy", no_wrap=True)
    table.add_column("p, g, o", no_wrap=True)
    table.add_column("micro", justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("peak", justify="right", no_wrap=True)
    table.add_column("verdict")
    for other in shown:
        chosen = other.verdict.startswith("chosen")
        table.add_row(
            other.name,
            degrees_text(other.strategies),
            str(other.micro_batch_size),
            seconds_text(other.step_s),
            bytes_text(other.peak_bytes),
            other.verdict,
            style="bold green" if chosen else "",
        )
    hidden = len(ordered) - len(shown)
    if not hidden:
        return table
    return Group(table, Text(f"{hidden} more with --verbose", style="dim"))
