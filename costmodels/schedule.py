"""What a rank does in one optimizer step, in order: a program for its compute stream, which starts and awaits messages.

The order is an engine's (`Engine.schedule`); how long each thing takes is the machine's, and who waits for whom
follows from both (`planner.simulate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from costmodels.engine import Assignment, Message
from costmodels.workload import Workload

WHOLE = 2**20
"""Parts that a segment's work is counted in, where something happens within it."""

Work = Literal["forward", "recompute", "backward", "update"]


@dataclass(frozen=True, slots=True)
class Compute:
    """A stretch of compute: a segment, or from one part of it to another."""

    work: Work
    """recompute: the forward of a block that runs again, within backward. update: the optimizer's, of all blocks."""
    segment: int
    """Index into `Workload.segments`; -1 for the update."""
    begin: int = 0
    end: int = WHOLE
    """Parts of `WHOLE` of the segment's work that are done before it, and after it."""


@dataclass(frozen=True, slots=True)
class Start:
    """A message is queued. Messages of a part are numbered as they are started, from 0."""

    message: Message
    """Its `count` is 1."""
    blocks: tuple[int, ...] = ()
    """Blocks whose parameters or gradients it carries; none: those of the whole model."""
    after: int | None = None
    """Number of the message whose result it sends on: it does not begin before that one is over."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Compute does not go on before a message has arrived."""

    number: int | None = None
    """Of the message; None: all that were started."""


Instruction = Compute | Start | Wait


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the step at whose end nothing is under way: a micro-batch, or what comes after the last one."""

    name: Literal["micro-batch", "update"]
    repeats: int
    """So many of it, one after the other."""
    instructions: tuple[Instruction, ...]


Schedule = tuple[Part, ...]
"""The parts of one optimizer step, in order."""


def in_turn(*programs: tuple[int, tuple[Instruction, ...]]) -> Schedule:
    """Returns micro-batches as parts, given as (repeats, instructions): neighbours that do the same are one."""
    parts: list[Part] = []
    for repeats, instructions in programs:
        if parts and parts[-1].instructions == instructions:
            parts[-1] = Part("micro-batch", parts[-1].repeats + repeats, instructions)
        elif repeats:
            parts.append(Part("micro-batch", repeats, instructions))
    return tuple(parts)


def recomputed_segments(workload: Workload, assignment: Assignment) -> Mapping[int, list[int]]:
    """Returns the forward segments that run again, by the backward segment before which they do.

    A recomputed block runs again before its first backward segment; one that has none, before the last of all.
    """
    first: dict[int, int] = {}
    for position, segment in enumerate(workload.segments):
        if segment.phase == "backward":
            first.setdefault(segment.block, position)
    found: dict[int, list[int]] = {}
    for position, segment in enumerate(workload.segments):
        block = workload.blocks[segment.block]
        if segment.phase == "forward" and block.recomputable and assignment[block.block_class].recompute == "full":
            found.setdefault(first.get(segment.block, len(workload.segments) - 1), []).append(position)
    return found


def messages_of(schedule: Schedule) -> Iterator[tuple[Message, int]]:
    """Yields each message of a step, with how many times its part is repeated."""
    for part in schedule:
        for instruction in part.instructions:
            if isinstance(instruction, Start):
                yield instruction.message, part.repeats
