"""Names the other engine where the asked one has nothing that fits."""

from __future__ import annotations

from planner.choose.candidate import Candidate
from planner.plan import Infeasible
from planner.report.figures import bytes_text, seconds_text


def with_other_engine(answer: Infeasible, other: Candidate | None) -> Infeasible:
    """Returns an answer whose first suggestion is the other engine's choice; None: it has none that fits either."""
    if other is None:
        return answer
    name = other.name.removeprefix(f"best of {other.engine}: ")
    text = (
        f"--engine {other.engine}: {name} fits, with {bytes_text(other.predicted.memory.peak_bytes)} per rank and "
        f"{seconds_text(other.predicted.step_s)} a step"
    )
    return answer.model_copy(update={"suggestions": (text, *answer.suggestions)})
