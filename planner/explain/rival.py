"""A strategy that was not chosen, with all that tells why: what is compared with a plan."""

from __future__ import annotations

from dataclasses import dataclass

from planner.explain.explanation import AtMicroBatch
from planner.plan import Plan, Predicted


@dataclass(frozen=True, slots=True)
class Rival:
    """One strategy for the model, machine, batch and budget of a plan."""

    best: Plan
    """At its best micro-batch and recomputation, as `estimate` answers."""
    micro_batches: tuple[AtMicroBatch, ...] = ()
    """At each, smallest first."""
    refusal: str | None = None
    """Why DeepSpeed does not have it; None: it has."""
    chosen_ideally: Predicted | None = None
    """The plan's own strategy on this one's engine, where the plan is of another."""
    would_fit: tuple[str, ...] = ()
    """What would fit in its place, where it does not."""
    is_current: bool = True
    """Whether this version predicts for the plan itself what the plan says."""
