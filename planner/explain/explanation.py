"""What `explain` answers: formulas with their numbers, or two plans beside each other."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from planner.plan import PlannedStrategy


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Line(_Frozen):
    """One figure of a plan, and how it comes about."""

    name: str
    formula: str = ""
    """With letters; empty where the figure is given."""
    substituted: str = ""
    """The same with numbers."""
    value: float
    unit: Literal["bytes", "s", "tokens/s", "samples/s", ""]
    source: str = ""


class Section(_Frozen):
    """Figures of one kind."""

    title: str
    lines: tuple[Line, ...]


class Explanation(_Frozen):
    """A plan's figures, section by section."""

    sections: tuple[Section, ...]


class Difference(_Frozen):
    """One figure of two plans."""

    name: str
    chosen: float
    other: float
    unit: Literal["bytes", "s"]


class MessageFigures(_Frozen):
    """All messages of one operation over one kind of group, per rank and optimizer step."""

    bytes: int
    count: int
    seconds: float
    exposed_s: float
    known: Literal["measured", "interpolated", "modelled"]


class MessageDifference(_Frozen):
    """One kind of message in two plans; None: that plan sends none."""

    operation: str
    degree_from: int
    degree_to: int
    chosen: MessageFigures | None
    other: MessageFigures | None


class Side(_Frozen):
    """One of two plans that are compared."""

    name: str
    engine: Literal["deepspeed", "fsdp"]
    strategies: tuple[PlannedStrategy, ...]
    micro_batch_size: int
    num_micro_batches: int
    num_recomputed: int
    """Blocks that are recomputed."""
    num_blocks: int
    step_s: float
    peak_bytes: int
    peak_phase: str
    """When in the step its peak is: components of two moments are not parts of one sum."""
    budget_bytes: int
    fits: bool


class AtMicroBatch(_Frozen):
    """A strategy at one micro-batch, with what is best recomputed there."""

    micro_batch_size: int
    num_micro_batches: int
    num_recomputed: int
    step_s: float
    peak_bytes: int
    fits: bool


Reason = Literal["memory", "engine", "time", "tie", "same", "faster"]


class Comparison(_Frozen):
    """Why one strategy was chosen over another."""

    chosen: Side
    other: Side
    """At its best micro-batch and recomputation; where nothing fits, where it needs the least memory."""
    reason: Reason
    """What decided: the other does not fit, is not one of the plan's engine, or is slower. `tie`: it is as fast.
    `same`: it is the plan. `faster`: it would be faster, so the plan was not free to choose it or was made with
    another machine."""
    verdict: str
    """The reason as a sentence with its numbers."""
    notes: tuple[str, ...] = ()
    """What else is to know: other micro-batches, engines and their schedules, what broke a tie."""
    refusal: str | None = None
    """Why DeepSpeed does not have the other; None: it has."""
    ideal_step_s: float | None = None
    """Where the other is of another engine than the plan: the plan's own strategy on that engine."""
    would_fit: tuple[str, ...] = ()
    """Where the other does not fit: what would, the smallest change of degrees first; each was evaluated."""
    time: tuple[Difference, ...]
    memory: tuple[Difference, ...]
    """The components at each one's peak, their sum `peak`, then `at rest`, `while building` and the `budget`."""
    traffic: tuple[MessageDifference, ...]
    micro_batches: tuple[AtMicroBatch, ...] = ()
    """The other at every micro-batch that the global batch allows, smallest first."""
