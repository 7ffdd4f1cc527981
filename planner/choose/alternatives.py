"""Sets the chosen strategy beside the others, each with its verdict: why it was not chosen, in numbers."""

from __future__ import annotations

from planner.choose.candidate import Candidate, as_alternative
from planner.plan import Alternative, Predicted
from planner.report.figures import bytes_in, bytes_unit, same_to_a_thousandth, seconds_in, seconds_unit, slower_text
from planner.report.names import computed_times, exposed_times

_SCHEDULES = {"deepspeed": "DeepSpeed's", "fsdp": "FSDP2's"}


def alternatives(chosen: Candidate, others: tuple[Candidate, ...]) -> tuple[Alternative, ...]:
    """Returns the chosen strategy first, then the others that fit by step time, then those that do not by memory."""
    fitting = sorted((other for other in others if other.fits), key=lambda other: other.predicted.step_s)
    beyond = sorted((other for other in others if not other.fits), key=lambda o: o.predicted.memory.peak_bytes)
    return (
        as_alternative(chosen, "chosen"),
        *(as_alternative(other, _verdict(chosen, other)) for other in (*fitting, *beyond)),
    )


def _verdict(chosen: Candidate, other: Candidate) -> str:
    memory = other.predicted.memory
    if not other.fits:
        unit = bytes_unit(memory.budget_bytes)
        name, largest_bytes = max(memory.components, key=lambda component: component[1])
        return (
            f"needs {unit.text(memory.peak_bytes)} ({memory.peak_phase}), has {unit.text(memory.budget_bytes)}; most "
            f"are {name.replace('_', ' ')}, {bytes_in(unit, largest_bytes)}"
        )
    text = _times(chosen.predicted, other.predicted)
    is_tie = same_to_a_thousandth(other.predicted.step_s, chosen.predicted.step_s)
    by_schedule = f"by {_SCHEDULES[other.engine]} schedule " if other.engine != chosen.engine else ""
    if is_tie:
        return by_schedule + text
    mine_s, its_s = chosen.predicted.simulated_step_s, other.predicted.simulated_step_s
    if mine_s is not None and its_s is not None and other.predicted.step_s < chosen.predicted.step_s:
        unit = seconds_unit(mine_s)
        played = f"{slower_text(its_s, mine_s)} when played through ({seconds_in(unit, its_s)})"
        return f"{by_schedule}{played}, {'though' if its_s > mine_s else 'and'} its bound is {text}"
    return f"{by_schedule}{text}, mainly {_cause(chosen.predicted, other.predicted)}"


def _times(chosen: Predicted, other: Predicted) -> str:
    """Returns how much slower the other is, all in all."""
    if same_to_a_thousandth(other.step_s, chosen.step_s):
        return _tie(chosen.memory.peak_bytes, other.memory.peak_bytes)
    more_s = other.step_s - chosen.step_s
    much = slower_text(other.step_s, chosen.step_s)
    sign = "+" if more_s > 0 else "-"
    return f"{much} ({sign}{seconds_in(seconds_unit(chosen.step_s), abs(more_s))})"


def _tie(chosen_bytes: int, other_bytes: int) -> str:
    """Returns what is said of two that are as fast: of those, the planner takes the lower peak."""
    if other_bytes == chosen_bytes:
        return "as fast, with the same peak"
    unit = bytes_unit(max(chosen_bytes, other_bytes))
    word = "higher" if other_bytes > chosen_bytes else "lower"
    return f"as fast, with a {word} peak ({unit.of(other_bytes)} against {unit.text(chosen_bytes)})"


def _cause(chosen: Predicted, other: Predicted) -> str:
    """Returns the part of the step that differs most in the direction of the whole."""
    sign = 1 if other.step_s >= chosen.step_s else -1
    differences = [
        (sign * (its - mine), name) for (name, mine), (_, its) in zip(_parts(chosen), _parts(other), strict=True)
    ]
    return max(differences, key=lambda entry: entry[0])[1]


def _parts(predicted: Predicted) -> tuple[tuple[str, float], ...]:
    return (*computed_times(predicted), *exposed_times(predicted))
