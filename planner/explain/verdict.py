"""Puts into sentences why a plan won over another strategy; every sentence has its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.explain.explanation import AtMicroBatch, Difference, Reason, Side
from planner.explain.rival import Rival
from planner.plan import Plan, PlannedStrategy
from planner.report.figures import bytes_in, bytes_unit, plural, same_to_a_thousandth, seconds_text, slower_text


def verdict(
    chosen: Plan, rival: Rival, sides: tuple[Side, Side], time: Sequence[Difference]
) -> tuple[Reason, str, tuple[str, ...]]:
    """Returns what decided, as a word, as a sentence, and what else is to know.

    Args:
        chosen: The plan.
        rival: The other strategy.
        sides: Both, as they are compared.
        time: The parts of both steps, and the step last.
    """
    mine, its = sides
    reason = _reason(chosen, rival, mine, its)
    return reason, _sentence(reason, chosen, rival, sides, time), tuple(_notes(reason, rival, sides))


def _sentence(reason: Reason, chosen: Plan, rival: Rival, sides: tuple[Side, Side], time: Sequence[Difference]) -> str:
    mine, its = sides
    match reason:
        case "memory":
            return _too_large(rival.best, its)
        case "same":
            return "It is the plan itself."
        case "engine":
            return _other_engine(mine, its, time)
        case "tie":
            return _tie(chosen, mine, its)
        case "faster":
            return f"It would be {_times(mine, its)}. {_why_slower_was_chosen(chosen, rival, mine)}"
        case "time":
            return f"It fits, and is {_times(mine, its)}, {_most(mine, its, time)}."


def _reason(chosen: Plan, rival: Rival, mine: Side, its: Side) -> Reason:
    other = rival.best
    if not its.fits:
        return "memory"
    if (chosen.strategies, chosen.job, chosen.predicted) == (other.strategies, other.job, other.predicted):
        return "same"
    if its.engine != mine.engine:
        return "engine"
    if same_to_a_thousandth(its.step_s, mine.step_s):
        return "tie"
    return "faster" if its.step_s < mine.step_s else "time"


def _times(mine: Side, its: Side) -> str:
    slower = slower_text(its.step_s, mine.step_s)
    return f"{slower}: {seconds_text(its.step_s)} against {seconds_text(mine.step_s)} a step"


def _most(mine: Side, its: Side, time: Sequence[Difference]) -> str:
    """Returns the net difference, and the part of the step that is most of it."""
    sign, word, verb = (1, "more", "added") if its.step_s >= mine.step_s else (-1, "less", "saved")
    part = max(time[:-1], key=lambda row: sign * (row.other - row.chosen))
    net_s, part_s = sign * (its.step_s - mine.step_s), sign * (part.other - part.chosen)
    return f"{seconds_text(net_s)} {word} in all; most is {verb} by {part.name}, {seconds_text(part_s)}"


def _too_large(other: Plan, its: Side) -> str:
    unit = bytes_unit(its.budget_bytes)
    name, largest_bytes = max(other.predicted.memory.components, key=lambda component: component[1])
    return (
        f"It does not fit: at the least, {_choice(its)}, it needs {unit.text(its.peak_bytes)} at its peak "
        f"({its.peak_phase}), {bytes_in(unit, its.peak_bytes - its.budget_bytes)} above the budget of "
        f"{unit.text(its.budget_bytes)}; most of it, {bytes_in(unit, largest_bytes)}, are {name.replace('_', ' ')}."
    )


def _other_engine(mine: Side, its: Side, time: Sequence[Difference]) -> str:
    text = f"It runs on the engine {its.engine} and not on {mine.engine}: there it is {_times(mine, its)}"
    if same_to_a_thousandth(its.step_s, mine.step_s):
        return f"{text}."
    return f"{text}, {_most(mine, its, time)}."


def _tie(chosen: Plan, mine: Side, its: Side) -> str:
    if mine.step_s != its.step_s:
        more_s = its.step_s - mine.step_s
        return (
            f"It fits, and is as fast as the model can tell: {_times(mine, its)}, "
            f"{seconds_text(abs(more_s))} {'more' if more_s > 0 else 'less'}; {_peaks(mine, its)}."
        )
    text = f"It fits, and is as fast to the nanosecond: {seconds_text(its.step_s)} a step; {_peaks(mine, its)}"
    if chosen.solver.status == "FIXED":
        return f"{text}. The plan was given, not chosen."
    if mine.peak_bytes < its.peak_bytes:
        return f"{text}: of equally fast ones, that of the lower peak is taken."
    if mine.peak_bytes == its.peak_bytes:
        return f"{text}: of equal ones, the first of the space is taken, whose order is by (p, s, g, o), ascending."
    return f"{text}."


def _peaks(mine: Side, its: Side) -> str:
    if mine.peak_bytes == its.peak_bytes:
        return f"both need {bytes_unit(mine.peak_bytes).text(mine.peak_bytes)} at their peaks"
    unit = bytes_unit(max(mine.peak_bytes, its.peak_bytes))
    return f"its peak is {unit.text(its.peak_bytes)}, and that of the plan {bytes_in(unit, mine.peak_bytes)}"


def _why_slower_was_chosen(chosen: Plan, rival: Rival, mine: Side) -> str:
    if chosen.solver.status == "FIXED":
        return "The plan was given, not chosen."
    if chosen.solver.decided_by == "simulation":
        return "The plan is faster when played through, and that decided; these are the bounds of both steps."
    if chosen.solver.status == "FEASIBLE":
        return (
            f"The plan is the best that was found in time: a faster one was known to be possible, by at most "
            f"{chosen.solver.gap:.1%}."
        )
    at_mine = _at(rival, mine.micro_batch_size)
    is_at_mine = mine.micro_batch_size == rival.best.job.micro_batch_size
    if at_mine is not None and not is_at_mine and (not at_mine.fits or at_mine.step_s >= mine.step_s):
        return f"The plan was made for a micro-batch of {mine.micro_batch_size}, where this one is no better."
    return (
        "The plan was made under limits that this question does not have, such as --micro-batch-size or --recompute, "
        "or by another version."
    )


def _at(rival: Rival, micro_batch_size: int) -> AtMicroBatch | None:
    return next((each for each in rival.micro_batches if each.micro_batch_size == micro_batch_size), None)


def _choice(its: Side | AtMicroBatch) -> str:
    """Returns `micro-batch 2 × 4` and what is recomputed."""
    recomputed = f", recomputing {plural(its.num_recomputed, 'block')}" if its.num_recomputed else ""
    return f"micro-batch {its.micro_batch_size:,} × {its.num_micro_batches:,}{recomputed}"


def _notes(reason: Reason, rival: Rival, sides: tuple[Side, Side]) -> Iterator[str]:
    mine, its = sides
    if reason != "same" and _choice(mine) != _choice(its):
        best = "It is at its best with" if its.fits else "It needs least with"
        yield f"{best} {_choice(its)}; the plan has {_choice(mine)}."
    at_mine = _at(rival, mine.micro_batch_size)
    if at_mine is not None and at_mine.micro_batch_size != its.micro_batch_size:
        yield _at_the_plans(at_mine, mine)
    added = sorted({text for each in mine.strategies for text in _added(each)})
    if added:
        yield f"The plan has {' and '.join(added)}; the other is looked at without."
    if rival.refusal is not None and its.engine != mine.engine:
        yield f"{rival.refusal}."
    if rival.chosen_ideally is not None and its.engine != mine.engine:
        yield _schedules(mine, its, rival.chosen_ideally.step_s)
    if not rival.is_current:
        yield "The plan's own figures are not what this version predicts for it: plan again to compare like with like."


def _added(strategy: PlannedStrategy) -> Iterator[str]:
    """Yields what a strategy has beside its degrees and recomputation."""
    if strategy.offload != "none":
        yield "optimizer states in host memory" if strategy.offload == "optimizer" else "all states in host memory"
    if strategy.quantized_weights:
        yield "quantized gathers (qwZ)"
    if strategy.quantized_gradients:
        yield "quantized reductions (qgZ)"


def _at_the_plans(at_mine: AtMicroBatch, mine: Side) -> str:
    unit = bytes_unit(max(at_mine.peak_bytes, mine.budget_bytes))
    text = f"At the plan's micro-batch of {mine.micro_batch_size:,} it would need {unit.text(at_mine.peak_bytes)}"
    if not at_mine.fits:
        return f"{text}, and {bytes_in(unit, mine.budget_bytes)} are available."
    return f"{text} and take {seconds_text(at_mine.step_s)} a step."


def _schedules(mine: Side, its: Side, ideal_s: float) -> str:
    """Splits what two engines differ by into what their schedules and what the degrees do."""
    schedule_s, degrees_s = ideal_s - mine.step_s, its.step_s - ideal_s
    return (
        f"On the engine {its.engine} the plan's own degrees would take {seconds_text(ideal_s)}: of the difference, "
        f"{_signed(schedule_s)} are the schedule's and {_signed(degrees_s)} the degrees'."
    )


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{seconds_text(abs(seconds))}"
