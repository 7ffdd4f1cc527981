"""The order of the ideal schedule: each block is gathered ahead of its compute and reduced after it.

A block's gather starts when the block `prefetch` before it in that phase begins to compute; the first of a phase,
when the phase begins. The reduction of a block's gradients starts after its backward, once the reduction before it is
over, whose buffer it takes. No micro-batch begins before all messages of the one before are over.

In the last micro-batch each block's gradients go on from g to o and from o to N as they come; what the update changed
is spread in the first micro-batch of the next step, ahead of each block's forward. As far as the messages say so
(`beside_backward`, `beside_forward`); others stand alone, before the update and after it.

Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (one gather ahead; a reduce-scatter waits
for the one before it; the end of backward waits for the last).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from costmodels.engine import Assignment, Message
from costmodels.fsdp.holds import Use, uses
from costmodels.fsdp.traffic import BlockTraffic, block_traffic, is_sent
from costmodels.schedule import Compute, Instruction, Part, Schedule, Start, Wait, in_turn, recomputed_segments
from costmodels.strategy import StepShape
from costmodels.workload import Phase, Workload

PREFETCH = 1
"""Blocks that are gathered ahead of the running one: what `costmodels.fsdp.memory` holds."""


def schedule(workload: Workload, assignment: Assignment, shape: StepShape, prefetch: int = PREFETCH) -> Schedule:
    """Returns what a rank does in one optimizer step.

    Args:
        workload: the traced step.
        assignment: one strategy per class of blocks.
        shape: micro-batches and precision.
        prefetch: blocks that are gathered ahead of the running one; 0: none, and each waits for its own gather.
    """
    blocks = block_traffic(workload, assignment, shape)
    times = shape.num_micro_batches

    def micro_batch(place: int) -> tuple[Instruction, ...]:
        program = _Program(workload, assignment, blocks, place == 0, place == times - 1)
        program.run("forward", prefetch)
        program.run("backward", prefetch)
        return (*program.instructions, Wait())

    first, last = micro_batch(0), micro_batch(times - 1)
    middle = micro_batch(1) if times > 2 else last
    return (
        *in_turn((1, first), (max(0, times - 2), middle), (min(1, times - 1), last)),
        Part("update", 1, tuple(_alone(blocks))),
    )


class _Program:
    """The instructions of one micro-batch, and the numbers of the messages among them."""

    def __init__(
        self,
        workload: Workload,
        assignment: Assignment,
        blocks: Sequence[BlockTraffic],
        is_first: bool,
        is_last: bool,
    ) -> None:
        self.workload, self.blocks = workload, blocks
        self.is_first, self.is_last = is_first, is_last
        self.again = recomputed_segments(workload, assignment)
        self.backward = [tuple(block.backward()) for block in blocks]
        self.instructions: list[Instruction] = []
        self.started = 0
        self.arriving: dict[int, int] = {}
        """The last message that brings each block's parameters."""
        self.reduction: int | None = None
        """The last message that took the buffer of reductions."""

    def run(self, phase: Phase, prefetch: int) -> None:
        """Adds one phase: its segments, what is gathered before each, and what is reduced after it."""
        used = uses(self.workload, phase)
        begin, end = _by_segment(used, lambda use: use.first), _by_segment(used, lambda use: use.last)
        ahead = _ahead(used, prefetch)
        for position, segment in enumerate(self.workload.segments):
            if segment.phase == phase:
                for block in ahead.get(position, ()):
                    self._gather(block, phase)
                for block in begin.get(position, ()):
                    if block in self.arriving:
                        self.instructions.append(Wait(self.arriving.pop(block)))
                self._compute(position, phase)
                for block in end.get(position, ()) if phase == "backward" else ():
                    self._reduce(block)
        # What a phase does not reach is sent at its end, with the rest.
        reached = {use.block for use in used}
        for block in reversed(range(len(self.blocks))):
            if block not in reached:
                self._gather(block, phase) if phase == "forward" else self._reduce(block)

    def _start(self, message: Message, block: int, after: int | None = None) -> int | None:
        """Queues a message, and returns its number; `after` where there is nothing to send."""
        if not is_sent(message):
            return after
        self.instructions.append(Start(replace(message, count=1), (block,), after))
        self.started += 1
        return self.started - 1

    def _gather(self, block: int, phase: Phase) -> None:
        number = None
        if phase == "forward":
            update = self.blocks[block].update()
            if self.is_first and update.beside_forward:
                number = self._start(update, block)
            number = self._start(self.blocks[block].forward(), block, number)
        elif len(self.backward[block]) > 1:
            number = self._start(self.backward[block][0], block)
        if number is not None:
            self.arriving[block] = number

    def _compute(self, segment: int, phase: Phase) -> None:
        if phase == "backward":
            self.instructions += [Compute("recompute", again) for again in self.again.get(segment, ())]
        self.instructions.append(Compute(phase, segment))

    def _reduce(self, block: int) -> None:
        message = self.backward[block][-1]
        number = None
        if is_sent(message):
            if self.reduction is not None:
                self.instructions.append(Wait(self.reduction))
            number = self.reduction = self._start(message, block)
        for boundary in self.blocks[block].boundary() if self.is_last else ():
            if boundary.beside_backward:
                number = self._start(boundary, block, number)


def _by_segment(used: Sequence[Use], of_use: Callable[[Use], int]) -> Mapping[int, list[int]]:
    """Returns the blocks by a segment of their use, in order of their first."""
    found: dict[int, list[int]] = {}
    for use in sorted(used, key=lambda each: each.first):
        found.setdefault(of_use(use), []).append(use.block)
    return found


def _ahead(used: Sequence[Use], prefetch: int) -> Mapping[int, list[int]]:
    """Returns the blocks whose gathers are started, by the segment before which they are."""
    starts: dict[int, list[int]] = {}
    for place, use in enumerate(used):
        starts.setdefault(used[max(0, place - prefetch)].first, []).append(use.block)
    return starts


def _alone(blocks: Sequence[BlockTraffic]) -> Iterator[Instruction]:
    """Yields what no micro-batch runs beside: messages of the boundary, the update, messages of what it changed."""
    started = 0
    for number in reversed(range(len(blocks))):
        before = None
        for message in blocks[number].boundary():
            if is_sent(message) and not message.beside_backward:
                yield Start(replace(message, count=1), (number,), before)
                before, started = started, started + 1
    yield Wait()
    yield Compute("update", -1)
    for number, block in enumerate(blocks):
        message = block.update()
        if is_sent(message) and not message.beside_forward:
            yield Start(replace(message, count=1), (number,))
    yield Wait()
