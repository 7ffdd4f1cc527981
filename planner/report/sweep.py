"""What a sweep says: for each size of the machine a plan, or why there is none, and how the sizes compare."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.plan import Infeasible, Plan, ScaledPlan, Scaling
from planner.report.figures import Unit, bytes_in, bytes_unit, seconds_in, seconds_unit
from planner.report.names import degrees_names, degrees_text, plan_name


def sweep_table(answers: Sequence[Plan | Infeasible]) -> RenderableType:
    """Returns one line per size, in the order asked; beneath, what would help where nothing fits."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    degrees = degrees_names([each for answer in answers if isinstance(answer, Plan) for each in answer.strategies])
    for name in ("ranks", "strategy", degrees, "step", "tokens/s", "scaling", "MFU", "peak"):
        words = name in ("strategy", degrees)
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "strategy")
    plans = [answer for answer in answers if isinstance(answer, Plan)]
    peaks = [a.predicted.memory.peak_bytes if isinstance(a, Plan) else a.needed_bytes for a in answers]
    units = (
        seconds_unit(max((each.predicted.step_s for each in plans), default=0.0)),
        bytes_unit(max(peaks, default=0)),
    )
    for answer in scaled(answers):
        if isinstance(answer, Infeasible) and answer.nearest is None:
            table.add_row(str(answer.world_size), "no legal batch", style="red")
        elif isinstance(answer, Infeasible):
            needed = bytes_in(units[1], answer.needed_bytes)
            table.add_row(str(answer.world_size), "nothing fits", "", "", "", "", "", needed, style="red")
        else:
            table.add_row(*_cells(answer, *units))
    reasons = [_reason(answer) for answer in answers if isinstance(answer, Infeasible)]
    return Group(table, *_compared(answers), *reasons)


def scaled(answers: Sequence[Plan | Infeasible]) -> tuple[ScaledPlan | Infeasible, ...]:
    """Returns the answers in the order asked, each plan with how its size compares with the others."""
    plans = sorted((each for each in answers if isinstance(each, Plan)), key=lambda plan: plan.hardware.world_size)
    if not plans:
        return tuple(answer for answer in answers if isinstance(answer, Infeasible))
    fewest = plans[0].hardware.world_size
    most = max(plans, key=_per_rank).hardware.world_size
    return tuple(
        answer
        if isinstance(answer, Infeasible)
        else ScaledPlan(
            **dict(answer),
            scaling=Scaling(
                tokens_per_s_per_rank=_per_rank(answer),
                efficiency=_per_rank(answer) / _per_rank(plans[0]),
                is_fewest_ranks=answer.hardware.world_size == fewest,
                is_most_per_rank=answer.hardware.world_size == most,
            ),
        )
        for answer in answers
    )


def _per_rank(plan: Plan) -> float:
    return plan.predicted.tokens_per_s / plan.hardware.world_size


def _compared(answers: Sequence[Plan | Infeasible]) -> list[Text]:
    """Returns a line on the fewest ranks that fit, and the size that makes most of each; none for a single size."""
    plans = [each for each in scaled(answers) if isinstance(each, ScaledPlan)]
    if len(answers) < 2 or not plans:
        return []
    fewest = next(each for each in plans if each.scaling.is_fewest_ranks)
    most = next(each for each in plans if each.scaling.is_most_per_rank)
    first, best = fewest.hardware.world_size, most.hardware.world_size
    text = f"\n{first} ranks are the fewest on which it fits; {best} train most per rank"
    text += f", {most.scaling.tokens_per_s_per_rank:,.1f} tokens/s."
    return [Text(f"{text} Scaling: tokens/s per rank, against those of {first}.")]


def _cells(plan: ScaledPlan, time: Unit, memory: Unit) -> tuple[str, ...]:
    predicted = plan.predicted
    return (
        str(plan.hardware.world_size),
        plan_name(plan.strategies, plan.hardware),
        degrees_text(plan.strategies),
        seconds_in(time, predicted.step_s),
        f"{predicted.tokens_per_s:,.0f}",
        f"{100 * plan.scaling.efficiency:.1f}%",
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
