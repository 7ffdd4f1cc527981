"""What a cost model of an engine answers: which strategies it has, what it sends, and what it holds in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload

if TYPE_CHECKING:
    from costmodels.schedule import Schedule

Operation = Literal["all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
Cause = Literal["forward", "backward", "boundary", "update", "control"]


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """`count` equal messages of one rank in one optimizer step (all M micro-batches)."""

    operation: Operation
    degree_from: int
    """The group has the ranks of equal r mod degree_from ..."""
    degree_to: int
    """... inside one block of degree_to ranks."""
    message_bytes: int
    """The full tensor's bytes, before sharding, of one message."""
    count: int
    cause: Cause
    """forward, backward: in each micro-batch. boundary: gradients of the last micro-batch. update: after the optimizer
    step. control: norms and overflow flags of a few bytes."""
    beside_backward: bool = False
    """Of the boundary: sent while the last micro-batch's backward still computes, not after it."""
    converted_bytes: int = 0
    """Bytes that the rank reads and writes on its device to quantize what one message sends and dequantize what it
    brings."""
    beside_forward: bool = False
    """Of the update: each block's sent before its first forward of the next step, while blocks before it compute."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all `count` messages."""
        return self.message_bytes * self.count


@dataclass(frozen=True, slots=True)
class Components:
    """Bytes on one rank by what they are for; the contract's `memory.components`."""

    parameters: int = 0
    gradients: int = 0
    optimizer_states: int = 0
    activations: int = 0
    gathered_parameters: int = 0
    buffers: int = 0
    """Communication buckets and flat staging buffers."""
    optimizer_step: int = 0
    reserved: int = 0
    """Context, communicators and what the allocator cannot give."""

    @property
    def total_bytes(self) -> int:
        """Sum of all components."""
        return (
            self.parameters
            + self.gradients
            + self.optimizer_states
            + self.activations
            + self.gathered_parameters
            + self.buffers
            + self.optimizer_step
            + self.reserved
        )

    def __add__(self, other: Components) -> Components:
        return Components(
            self.parameters + other.parameters,
            self.gradients + other.gradients,
            self.optimizer_states + other.optimizer_states,
            self.activations + other.activations,
            self.gathered_parameters + other.gathered_parameters,
            self.buffers + other.buffers,
            self.optimizer_step + other.optimizer_step,
            self.reserved + other.reserved,
        )


@dataclass(frozen=True, eq=False)
class Course:
    """What an engine holds where it changes within segments, as gradients come; many memories share one."""

    segments: tuple[tuple[Components, ...], ...]
    """One per `Workload.segments`. For n `Segment.gradients` 2n + 1: before the first is complete, as it comes, after
    it, as the second comes, and so on. Any other number: the worst is held throughout."""

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Parts of each segment."""
        return tuple(len(parts) for parts in self.segments)

    @cached_property
    def worst(self) -> tuple[Components, ...]:
        """The greatest of each segment; the first of equal ones."""
        return tuple(max(parts, key=lambda held: held.total_bytes) for parts in self.segments)

    @cached_property
    def total_bytes(self) -> NDArray[np.int64]:
        """Bytes of all parts of all segments, joined."""
        return np.array([held.total_bytes for parts in self.segments for held in parts], np.int64)


@dataclass(frozen=True)
class EngineMemory:
    """What an engine holds on its fullest rank beside the activations of the workload."""

    at_rest: Components
    """Between two steps, when states exist and no micro-batch runs."""
    init_peak_bytes: int
    """Greatest bytes while the model and the engine are built."""
    during_update: Components
    """Beyond `at_rest`, at the worst moment of the optimizer step."""
    throughout: tuple[Components, ...] = ()
    """One per `Workload.segments`, or none: held beyond `at_rest` from its beginning to its end: gathered parameters,
    in the worst micro-batch."""
    course: Course | None = None
    """Held beyond `throughout`: unreduced gradients, buckets in flight. None: nothing."""
    entering_segment: tuple[Components, ...] = ()
    """One per `Workload.segments`, where more is held as it begins than at the peak of its activations; or none."""
    host_bytes: int = 0
    """What the rank holds in its node's host memory; 0 on a CPU, where the device's memory is the host's."""

    @cached_property
    def during_segment(self) -> tuple[Components, ...]:
        """One per `Workload.segments`, beyond `at_rest`: at the worst moment of the segment."""
        if self.course is None:
            return self.throughout
        if not self.throughout:
            return self.course.worst
        return tuple(held + worst for held, worst in zip(self.throughout, self.course.worst, strict=True))


Assignment = tuple[Strategy, ...]
"""One strategy per class of equal blocks: index = `Block.block_class`."""


class Engine(Protocol):
    """The cost model of one engine. Functions of numbers only; no machine and no torch.

    An engine may ask that all classes share their degrees; `recompute` may always differ by class, and counts only for
    blocks that are `recomputable`.
    """

    @property
    def name(self) -> str:
        """`deepspeed` or `fsdp`."""
        ...

    def refusal(self, workload: Workload, assignment: Assignment, shape: StepShape) -> str | None:
        """Returns why this engine cannot run the assignment, or None when it can."""
        ...

    def traffic(self, workload: Workload, assignment: Assignment, shape: StepShape) -> tuple[Message, ...]:
        """Returns every message that one rank takes part in during one optimizer step, in a fixed order."""
        ...

    def schedule(self, workload: Workload, assignment: Assignment, shape: StepShape) -> Schedule:
        """Returns the same messages in order of execution, among what is computed before and after them."""
        ...

    def memory(self, workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
        """Returns what the engine holds; the walk over the step that finds the peak is `costmodels.memory`."""
        ...

    def least_memory(self, workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
        """Returns a part of `memory` that is quick to count, so that what cannot fit is known at once.

        Nothing in it is more than `memory` has for the same arguments, whatever is recomputed.
        """
        ...
