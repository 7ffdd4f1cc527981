"""The table of a sweep: for each size of the machine a plan, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.plan import Infeasible, Plan
from planner.report.figures import Unit, bytes_in, bytes_unit, seconds_in, seconds_unit
from planner.report.names import degrees_names, degrees_text, plan_name


def sweep_table(answers: Sequence[Plan | Infeasible]) -> RenderableType:
    """Returns one line per size, in the order asked; beneath, what would help where nothing fits."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    degrees = degrees_names([each for answer in answers if isinstance(answer, Plan) for each in answer.strategies])
    for name in ("ranks", "strategy", degrees, "step", "tokens/s", "MFU", "peak"):
        words = name in ("strategy", degrees)
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "strategy")
    plans = [answer for answer in answers if isinstance(answer, Plan)]
    peaks = [a.predicted.memory.peak_bytes if isinstance(a, Plan) else a.needed_bytes for a in answers]
    units = (
        seconds_unit(max((each.predicted.step_s for each in plans), default=0.0)),
        bytes_unit(max(peaks, default=0)),
    )
    for answer in answers:
        if isinstance(answer, Infeasible) and answer.nearest is None:
            table.add_row(str(answer.world_size), "no legal batch", style="red")
        elif isinstance(answer, Infeasible):
            needed = bytes_in(units[1], answer.needed_bytes)
            table.add_row(str(answer.world_size), "nothing fits", "", "", "", "", needed, style="red")
        else:
            table.add_row(*_cells(answer, *units))
    reasons = [_reason(answer) for answer in answers if isinstance(answer, Infeasible)]
    return Group(table, *reasons)


def _cells(plan: Plan, time: Unit, memory: Unit) -> tuple[str, ...]:
    predicted = plan.predicted
    return (
        str(plan.hardware.world_size),
        plan_name(plan.strategies, plan.hardware),
        degrees_text(plan.strategies),
        seconds_in(time, predicted.step_s),
        f"{predicted.tokens_per_s:,.0f}",
        f"{100 * predicted.mfu:.1f}%",
        bytes_in(memory, predicted.memory.peak_bytes),
    )


def _reason(infeasible: Infeasible) -> RenderableType:
    if infeasible.nearest is None:
        return Text(f"\n{infeasible.world_size} ranks: {infeasible.reason}")
    unit = bytes_unit(infeasible.available_bytes)
    needed, available = unit.text(infeasible.needed_bytes), unit.text(infeasible.available_bytes)
    text = Text(
        f"\n{infeasible.world_size} ranks: the nearest, {infeasible.nearest.name}, needs {needed} of {available}."
    )
    for suggestion in infeasible.suggestions:
        text.append(f"\n  {suggestion}")
    return text
