"""Says why a plan was chosen over another strategy for the same job: the binding constraint, or the time by cause."""

from __future__ import annotations

from typing import Literal

from planner.explain.explanation import Comparison, Difference
from planner.plan import Plan
from planner.report.figures import bytes_in, bytes_unit, same_to_a_thousandth, seconds_text, slower_text
from planner.report.names import degrees_text, exposed_times, operation_text, plan_name


def compare(chosen: Plan, other: Plan) -> Comparison:
    """Returns why `chosen` won over `other`, in numbers.

    Args:
        chosen: the plan in question.
        other: another strategy for the same model, machine and batch, as `estimate` answers.
    """
    reason, verdict = _decided_by(chosen, other)
    return Comparison(
        chosen_name=_name(chosen),
        other_name=_name(other),
        reason=reason,
        verdict=verdict,
        chosen_peak_phase=chosen.predicted.memory.peak_phase,
        other_peak_phase=other.predicted.memory.peak_phase,
        memory=_memory(chosen, other),
        time=_time(chosen, other),
        traffic=_traffic(chosen, other),
    )


def _name(plan: Plan) -> str:
    return f"{plan_name(plan.strategies, plan.hardware)} ({degrees_text(plan.strategies)})"


def _decided_by(chosen: Plan, other: Plan) -> tuple[Literal["memory", "engine", "time", "tie", "same", "faster"], str]:
    memory = other.predicted.memory
    step_s, other_s = chosen.predicted.step_s, other.predicted.step_s
    slower = slower_text(other_s, step_s)
    times = f"{seconds_text(other_s)} against {seconds_text(step_s)} a step"
    if memory.peak_bytes > memory.budget_bytes:
        unit = bytes_unit(memory.budget_bytes)
        largest, largest_bytes = max(memory.components, key=lambda component: component[1])
        largest = largest.replace("_", " ")
        return "memory", (
            f"It does not fit: it needs {unit.text(memory.peak_bytes)} at its peak ({memory.peak_phase}), "
            f"{bytes_in(unit, memory.peak_bytes - memory.budget_bytes)} above the budget of "
            f"{unit.text(memory.budget_bytes)}; most of it, {bytes_in(unit, largest_bytes)}, are {largest}."
        )
    if chosen.strategies == other.strategies and chosen.job == other.job and chosen.engine == other.engine:
        return "same", "It is the plan itself."
    if other.engine != chosen.engine:
        return (
            "engine",
            f"It needs the engine {other.engine}, which this version does not run; it would be {slower}: {times}.",
        )
    if same_to_a_thousandth(other_s, step_s):
        unit, mine_bytes = bytes_unit(memory.peak_bytes), chosen.predicted.memory.peak_bytes
        return "tie", (
            f"It fits, and is as fast: {times}; its peak is {unit.text(memory.peak_bytes)}, and that of this plan "
            f"{bytes_in(unit, mine_bytes)}."
        )
    if other_s < step_s:
        return "faster", f"It would be {slower}: {times}. The plan was given, or made under other limits."
    name, more_s = max(
        ((each.name, each.other - each.chosen) for each in _time(chosen, other)[:-1]), key=lambda item: item[1]
    )
    net = f"{seconds_text(other_s - step_s)} more in all"
    return "time", f"It fits, and is {slower}: {times}, {net}; most is added by {name}, {seconds_text(more_s)}."


def _memory(chosen: Plan, other: Plan) -> tuple[Difference, ...]:
    mine, its = chosen.predicted.memory, other.predicted.memory
    rows = [
        Difference(name=name.replace("_", " "), chosen=mine_bytes, other=its_bytes, unit="bytes")
        for (name, mine_bytes), (_, its_bytes) in zip(mine.components, its.components, strict=True)
        if mine_bytes or its_bytes
    ]
    return (*rows, Difference(name="peak", chosen=mine.peak_bytes, other=its.peak_bytes, unit="bytes"))


def _time(chosen: Plan, other: Plan) -> tuple[Difference, ...]:
    mine, its = chosen.predicted, other.predicted
    rows = [("compute", mine.compute_s, its.compute_s)]
    # Both have the same causes, or neither has any.
    pairs = zip(exposed_times(mine), exposed_times(its), strict=True)
    rows += [(name, mine_s, its_s) for (name, mine_s), (_, its_s) in pairs]
    rows.append(("step", mine.step_s, its.step_s))
    return tuple(Difference(name=name, chosen=a, other=b, unit="s") for name, a, b in rows if a or b)


def _traffic(chosen: Plan, other: Plan) -> tuple[Difference, ...]:
    mine, its = (
        {(row.operation, row.degree_from, row.degree_to): row.bytes for row in plan.predicted.traffic}
        for plan in (chosen, other)
    )
    return tuple(
        Difference(name=operation_text(*key), chosen=mine.get(key, 0), other=its.get(key, 0), unit="bytes")
        for key in dict.fromkeys((*mine, *its))
    )
