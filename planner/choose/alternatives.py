"""Sets the chosen strategy beside the others, each with its verdict: why it was not chosen, in numbers."""

from __future__ import annotations

from costmodels.workload import Workload
from planner.choose.candidate import Candidate, as_alternative
from planner.plan import Alternative, Predicted
from planner.report.figures import bytes_text


def alternatives(workload: Workload, chosen: Candidate, others: tuple[Candidate, ...]) -> tuple[Alternative, ...]:
    """Returns the chosen strategy first, then the others that fit by step time, then those that do not by memory."""
    fitting = sorted((other for other in others if other.fits), key=lambda other: other.predicted.step_s)
    beyond = sorted((other for other in others if not other.fits), key=lambda o: o.predicted.memory.peak_bytes)
    return (
        as_alternative(workload, chosen, "chosen"),
        *(as_alternative(workload, other, _verdict(chosen, other)) for other in (*fitting, *beyond)),
    )


def _verdict(chosen: Candidate, other: Candidate) -> str:
    memory = other.predicted.memory
    if not other.fits:
        return f"needs {bytes_text(memory.peak_bytes)}, has {bytes_text(memory.budget_bytes)}"
    mine, its = chosen.predicted, other.predicted
    change = its.step_s / mine.step_s - 1
    text = f"{abs(change):.1%} {'slower' if change >= 0 else 'faster'}"
    if cause := _cause(mine, its):
        text += f": {cause}"
    if other.engine == chosen.engine:
        return text
    return f"cannot be run by this version; by the ideal schedule {text}"


def _cause(chosen: Predicted, other: Predicted) -> str:
    """Returns the part of the step that differs most in the direction of the whole, in milliseconds."""
    sign = 1 if other.step_s >= chosen.step_s else -1
    differences = [
        (sign * (its - mine), name) for (name, mine), (_, its) in zip(_parts(chosen), _parts(other), strict=True)
    ]
    difference_s, name = max(differences, key=lambda entry: entry[0])
    return f"{sign * difference_s * 1e3:+.1f} ms {name}" if difference_s > 0 else ""


def _parts(predicted: Predicted) -> tuple[tuple[str, float], ...]:
    exposed = predicted.exposed
    if exposed is None:
        raise AssertionError("evaluate always splits the exposed time")
    return (
        ("compute", predicted.compute_s),
        ("exposed in forward", exposed.forward_s),
        ("exposed in backward", exposed.backward_s),
        ("gradients at the boundary", exposed.boundary_s),
        ("parameters after the update", exposed.update_s),
        ("control messages", exposed.control_s),
    )
