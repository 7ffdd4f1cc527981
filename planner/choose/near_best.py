"""Plays the best choices through: the simulated step decides among them, since the solver's is a linear bound of it.

The choices are tried in the order of their bounds, from the solver's own on, as long as one can be faster than the
fastest that was played by more than a thousandth: a step is mostly not faster than its bound. Where it can be,
`tests/property/test_simulate_laws.py` says; if the solver's own is, by some time, others are taken to be by up to twice
that. What is within a thousandth is as fast, and the solver's order stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from costmodels.compute import NS_PER_S
from costmodels.engine import Engine
from planner.choose.candidate import Candidate
from planner.choose.play import play
from planner.choose.setting import Setting
from planner.cost_table import CostTable, Option, Recomputed
from planner.report.figures import seconds_text, share_text
from planner.simulate.timeline import Timeline
from planner.solve import Solution

MOST_PLAYED = 10
"""Choices with secondary degrees or micro-batches of their own can be many and alike."""
FASTER_PARTS = 999
"""Thousandths of a step below which another one is faster."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice that is the fastest when played through."""

    option: Option
    recomputed: Recomputed
    timeline: Timeline
    by: Literal["bound", "simulation", "blocks"]
    """simulation: another choice than the solver's is faster. blocks: fewer blocks of it are recomputed."""
    warnings: tuple[str, ...] = ()
    """What the bound preferred, and by how much the two differ."""

    def of(self, found: Solution) -> Solution:
        """Returns the solution with this choice; objective, bound and status stay those of the proof."""
        return replace(found, option=self.option, recomputed=self.recomputed)


def decide(asked: Setting, engine: Engine, table: CostTable, found: Solution) -> Decision:
    """Returns the fastest of the near-best choices that fit, as simulated; mostly the solver's own.

    Args:
        asked: Model, machine and job.
        engine: Whose order of messages is played.
        table: The costs of the search space.
        found: The solver's choice.
    """
    best = first = (found.option, found.recomputed, _played(asked, engine, table, found.option, found.recomputed))
    sooner_ns = 2 * max(0, found.objective - first[2].step_ns)
    for option, recomputed in islice(_below(first[2].step_ns + sooner_ns, asked, table, found), MOST_PLAYED - 1):
        limit_ns = best[2].step_ns * FASTER_PARTS // 1000
        if option.step_ns(recomputed) - sooner_ns >= limit_ns:
            break
        timeline = _played(asked, engine, table, option, recomputed)
        if timeline.step_ns < limit_ns:
            best = (option, recomputed, timeline)
    if best is first:
        return Decision(*best, "bound")
    bounds_s = found.objective / NS_PER_S, best[0].step_ns(best[1]) / NS_PER_S
    text = overruled((bounds_s[0], first[2].step_s), (bounds_s[1], best[2].step_s))
    return Decision(*best, "simulation", (text,))


def beside(
    asked: Setting, engine: Engine, decision: Decision, chosen: Candidate, others: Iterable[Candidate]
) -> tuple[Candidate, tuple[Candidate, ...]]:
    """Returns the choice and its rivals with the played step of it and of all of its engine whose bound is lower.

    Args:
        asked: Model, machine and job.
        engine: The choice's.
        decision: By which it was chosen.
        chosen: The choice.
        others: Its rivals.
    """

    def played_where_lower(candidate: Candidate) -> Candidate:
        lower = candidate.fits and candidate.predicted.step_s < chosen.predicted.step_s
        if candidate.engine != engine.name or not lower:
            return candidate
        timeline = play(candidate.workload, engine, asked.machine, candidate.assignment, candidate.shape)
        return with_played(candidate, timeline.step_s)

    return with_played(chosen, decision.timeline.step_s), tuple(played_where_lower(other) for other in others)


def with_played(candidate: Candidate, played_s: float) -> Candidate:
    """Returns a candidate that says what its step takes when it is played through."""
    predicted = candidate.predicted.model_copy(update={"simulated_step_s": played_s})
    return replace(candidate, predicted=predicted)


def _below(limit_ns: int, asked: Setting, table: CostTable, found: Solution) -> Iterator[tuple[Option, Recomputed]]:
    """Yields the other choices that fit and whose bound is below a limit, the least first."""
    near = [
        (bound_ns, option.peak_bytes(recomputed), number, recomputed)
        for number, option in enumerate(table.options)
        if option.least("time") < limit_ns and option.least("memory") <= asked.budget_bytes
        for recomputed in option.recomputations()
        if (bound_ns := option.step_ns(recomputed)) < limit_ns
    ]
    for _, peak_bytes, number, recomputed in sorted(near):
        option = table.options[number]
        is_found = (option.strategy, option.shape, recomputed) == (
            found.option.strategy,
            found.option.shape,
            found.recomputed,
        )
        if peak_bytes <= asked.budget_bytes and not is_found:
            yield option, recomputed


def _played(asked: Setting, engine: Engine, table: CostTable, option: Option, recomputed: Recomputed) -> Timeline:
    assignment = table.assignment(option.strategy, recomputed)
    return play(asked.workload, engine, asked.machine, assignment, option.shape)


def overruled(preferred: tuple[float, float], chosen: tuple[float, float]) -> str:
    """Returns why not what the bound prefers is chosen; of both the bound of a step and the step played, in seconds."""
    return (
        f"the solver's bound prefers another choice, at {seconds_text(preferred[0])} against "
        f"{seconds_text(chosen[0])}; played through, that one takes {seconds_text(preferred[1])} and this "
        f"one {seconds_text(chosen[1])} ({share_text(preferred[1] - chosen[1], preferred[1])} less), so this one is "
        "chosen; proved optimal is the bound"
    )
