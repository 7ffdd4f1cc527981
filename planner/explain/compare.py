"""Says why a plan was chosen over another strategy for the same job: the binding constraint, or the time by cause."""

from __future__ import annotations

from planner.explain.explanation import Comparison, Difference, MessageDifference, MessageFigures, Side
from planner.explain.rival import Rival
from planner.explain.verdict import verdict
from planner.plan import Plan
from planner.report.names import computed_times, degrees_text, exposed_times, num_recomputed, plan_name


def compare(chosen: Plan, rival: Rival) -> Comparison:
    """Returns why `chosen` won over another strategy, in numbers.

    Args:
        chosen: The plan in question.
        rival: The other strategy for the same model, machine and batch.
    """
    sides, time = (_side(chosen), _side(rival.best)), _time(chosen, rival.best)
    reason, sentence, notes = verdict(chosen, rival, sides, time)
    return Comparison(
        chosen=sides[0],
        other=sides[1],
        reason=reason,
        verdict=sentence,
        notes=notes,
        refusal=rival.refusal,
        ideal_step_s=rival.chosen_ideally.step_s if rival.chosen_ideally else None,
        would_fit=rival.would_fit,
        time=time,
        memory=_memory(chosen, rival.best),
        traffic=_traffic(chosen, rival.best),
        micro_batches=rival.micro_batches,
    )


def _side(plan: Plan) -> Side:
    memory = plan.predicted.memory
    return Side(
        name=_name(plan),
        engine=plan.engine,
        strategies=plan.strategies,
        micro_batch_size=plan.job.micro_batch_size,
        num_micro_batches=plan.job.num_micro_batches,
        num_recomputed=num_recomputed(plan.strategies),
        num_blocks=sum(len(strategy.blocks) for strategy in plan.strategies),
        step_s=plan.predicted.step_s,
        peak_bytes=memory.peak_bytes,
        peak_phase=memory.peak_phase,
        budget_bytes=memory.budget_bytes,
        fits=memory.peak_bytes <= memory.budget_bytes,
    )


def _name(plan: Plan) -> str:
    """Returns the system and its degrees; those once where they are its name."""
    name, degrees = plan_name(plan.strategies, plan.hardware), degrees_text(plan.strategies)
    return name if f"({degrees})" in name else f"{name} ({degrees})"


def _memory(chosen: Plan, other: Plan) -> tuple[Difference, ...]:
    mine, its = chosen.predicted.memory, other.predicted.memory
    rows = [
        (name.replace("_", " "), mine_bytes, its_bytes)
        for (name, mine_bytes), (_, its_bytes) in zip(mine.components, its.components, strict=True)
        if mine_bytes or its_bytes
    ]
    rows += [
        ("peak", mine.peak_bytes, its.peak_bytes),
        ("at rest", mine.at_rest_bytes, its.at_rest_bytes),
        ("while building", mine.init_peak_bytes, its.init_peak_bytes),
        ("budget", mine.budget_bytes, its.budget_bytes),
    ]
    return tuple(Difference(name=name, chosen=a, other=b, unit="bytes") for name, a, b in rows)


def _time(chosen: Plan, other: Plan) -> tuple[Difference, ...]:
    """Returns the parts of a step that either has, then the step."""
    mine, its = chosen.predicted, other.predicted
    # A plan of before compute was split has one figure for it, and then so has the other.
    split = mine.compute is not None and its.compute is not None
    parts = [(computed_times(each, split=split), exposed_times(each)) for each in (mine, its)]
    pairs = zip(*([*computed, *exposed] for computed, exposed in parts), strict=True)
    rows = [(name, mine_s, its_s) for (name, mine_s), (_, its_s) in pairs]
    rows.append(("step", mine.step_s, its.step_s))
    return tuple(Difference(name=name, chosen=a, other=b, unit="s") for name, a, b in rows if a or b)


def _traffic(chosen: Plan, other: Plan) -> tuple[MessageDifference, ...]:
    mine, its = (
        {(row.operation, row.degree_from, row.degree_to): row for row in plan.predicted.traffic}
        for plan in (chosen, other)
    )
    found = []
    for key in sorted(dict.fromkeys((*mine, *its))):
        sides = [
            MessageFigures(
                bytes=row.bytes, count=row.count, seconds=row.seconds, exposed_s=row.exposed_s, known=row.known
            )
            if row
            else None
            for row in (mine.get(key), its.get(key))
        ]
        operation, degree_from, degree_to = key
        found.append(
            MessageDifference(
                operation=operation, degree_from=degree_from, degree_to=degree_to, chosen=sides[0], other=sides[1]
            )
        )
    return tuple(found)
