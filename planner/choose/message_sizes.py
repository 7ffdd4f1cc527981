"""Chooses how much DeepSpeed joins into one message: the buckets of gradients, and what stage 3 fetches ahead.

A strategy is chosen with sizes by rule (`costmodels.deepspeed.knobs.choose_knobs`). Large messages start up seldom,
small ones begin early and leave little at the end; which is faster hangs on the links and on what there is to compute
beside them, and is seen when the step is played through. So smaller and larger ones are played, and those kept that fit
and shorten the step by enough to be worth other settings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from costmodels.deepspeed.engine import DeepSpeed
from costmodels.deepspeed.knobs import Knobs, choose_knobs
from planner.choose.candidate import Candidate
from planner.choose.changed import changed, would_fit
from planner.choose.play import play
from planner.choose.setting import Setting
from planner.report.figures import seconds_text
from planner.simulate.timeline import Timeline

FACTORS = tuple(tuple(Fraction(2) ** (sign * power) for power in (1, 2, 3)) for sign in (1, -1))
"""Larger, or else smaller, as long as the step gets shorter."""
WORTH_PARTS = 990
"""Thousandths of a step below which other sizes are worth it: less than that no profile tells."""


Change = Callable[[Knobs, Fraction, Candidate], Knobs]


@dataclass(frozen=True, slots=True)
class Sized:
    """A choice with the settings under which it is the fastest."""

    candidate: Candidate
    rule: Knobs
    """Those that the planner has by rule."""
    knobs: Knobs
    timeline: Timeline

    def instead_of(self, by_rule: Timeline) -> str:
        """Returns what is other than by rule, and what it gains."""
        changed = [
            f"{name} {getattr(self.knobs, name):,} in place of {getattr(self.rule, name):,}"
            for name in ("reduce_bucket_size", "prefetch_bucket_size")
            if getattr(self.knobs, name) != getattr(self.rule, name)
        ]
        return (
            f"{' and '.join(changed)} elements: played through, the step takes {seconds_text(self.timeline.step_s)} "
            f"with them, and {seconds_text(by_rule.step_s)} by rule"
        )


def with_sizes(asked: Setting, chosen: Candidate, timeline: Timeline) -> Sized | None:
    """Returns DeepSpeed's choice with other sizes of messages; None where those by rule are as fast.

    Args:
        asked: Model, machine and job.
        chosen: It fits.
        timeline: Its step, played through.
    """
    rule = choose_knobs(chosen.workload, chosen.assignment, chosen.shape)
    best, found = rule, timeline
    for change, causes in ((_with_bucket, ("backward", "boundary")), (_with_prefetch, ("forward", "backward"))):
        # Nothing is gained but what compute waits for.
        waits_ns = sum(getattr(found.exposed, f"{cause}_ns") for cause in causes)
        if rule.stage > 0 and waits_ns * 1000 >= found.step_ns * (1000 - WORTH_PARTS):
            best, found = _climbed(asked, chosen, change, best, found)
    if found.step_ns * 1000 > timeline.step_ns * WORTH_PARTS:
        return None
    sized = changed(asked, DeepSpeed(best), chosen, chosen.assignment)
    return Sized(sized, rule, best, found)


def _climbed(asked: Setting, chosen: Candidate, change: Change, best: Knobs, found: Timeline) -> tuple[Knobs, Timeline]:
    """Returns the settings with the shortest step, from these on up to eight times or an eighth of one size.

    Where larger messages help, smaller ones are not tried.
    """
    begun = best
    for factors in FACTORS:
        for factor in factors:
            knobs = change(begun, factor, chosen)
            if knobs == best:
                break
            engine = DeepSpeed(knobs)
            played = play(chosen.workload, engine, asked.machine, chosen.assignment, chosen.shape)
            # What fits is asked last, since it takes as long and is mostly so.
            if played.step_ns >= found.step_ns or not would_fit(asked, engine, chosen, chosen.assignment):
                break
            best, found = knobs, played
        if best != begun:
            break
    return best, found


def _with_bucket(knobs: Knobs, factor: Fraction, chosen: Candidate) -> Knobs:
    # Even, as `choose_knobs` has it.
    most = max(2, chosen.workload.num_trainable_params // 2 * 2)
    size = min(most, max(2, int(knobs.reduce_bucket_size * factor) // 2 * 2))
    return replace(knobs, reduce_bucket_size=size, allgather_bucket_size=size)


def _with_prefetch(knobs: Knobs, factor: Fraction, chosen: Candidate) -> Knobs:
    if knobs.stage < 3:
        return knobs
    most = chosen.workload.num_params
    size = min(most, max(1, int(knobs.prefetch_bucket_size * factor)))
    # The prefetcher stops where so many elements are gathered: what runs, and what is fetched.
    live = max(knobs.max_live_parameters, min(most, knobs.max_live_parameters // 2 + size))
    return replace(knobs, prefetch_bucket_size=size, max_live_parameters=live)
