"""The order of the fsdp engine: each block is spread and gathered ahead of its compute, and reduced after it.

A block's gather starts when the block `prefetch` before it in that phase begins to compute; the first of a phase,
when the phase begins. In the first micro-batch of a step what the update changed is spread one block further ahead, and
compute waits for it before it starts the gather; where p = 1, before the block itself.

As a block's backward ends, each message in flight goes one stage further, the oldest first: compute waits for it, and
starts what sends its result on: the reduction over g, in the last micro-batch that from g to o, the one from o to N.
Then the block's own first stage starts. No micro-batch begins before all messages of the one before are over; in the
last one that is before the update.

Source: `runtime/fsdp/spread.py`, `reducer.py` and `reduction.py`; PyTorch 2.13
torch/distributed/fsdp/_fully_shard/_fsdp_state.py, `_pre_forward` and `_pre_backward`, for prefetched gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from costmodels.engine import Assignment, Message
from costmodels.fsdp.traffic import BlockTraffic, block_traffic, control, is_sent
from costmodels.fsdp.uses import PREFETCH, Use, uses
from costmodels.schedule import Compute, Instruction, Part, Schedule, Start, Wait, in_turn, recomputed_segments
from costmodels.strategy import StepShape
from costmodels.workload import Phase, Workload


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
        program.run_forward(prefetch)
        program.arriving.clear()
        program.run_backward(prefetch)
        return (*program.instructions, Wait())

    first, last = micro_batch(0), micro_batch(times - 1)
    middle = micro_batch(1) if times > 2 else last
    return (
        *in_turn((1, first), (max(0, times - 2), middle), (min(1, times - 1), last)),
        Part("update", 1, tuple(_alone(shape))),
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
        self.instructions: list[Instruction] = []
        self.started = 0
        self.arriving: dict[int, int] = {}
        """The gather that brings each block's parameters."""
        self.spreading: dict[int, int] = {}
        """The message that brings each block what the update changed."""
        self.reducing: list[tuple[int, int, Iterator[Message]]] = []
        """The number of each message in flight, its block, and the stages after it."""

    def run_forward(self, prefetch: int) -> None:
        """Adds forward: its segments, and what is spread and gathered before each."""
        used = uses(self.workload, "forward")
        places = {use.block: place for place, use in enumerate(used)}
        order = [use.block for use in used]
        order += [block for block in range(len(self.blocks)) if block not in places]
        self._spread(order[: prefetch + 1])
        begin = _by_segment(used, lambda use: use.first)
        for position, segment in enumerate(self.workload.segments):
            if segment.phase == "forward":
                for block in begin.get(position, ()):
                    place = places[block]
                    self._finish_spreading(order[place : place + prefetch + 1], block)
                    self._spread(order[: place + prefetch + 2])
                    self._gather_from(place, used, prefetch, "forward")
                self.instructions.append(Compute("forward", position))
        self._spread(order)

    def run_backward(self, prefetch: int) -> None:
        """Adds backward: its segments, what is gathered before each, and what is reduced after it."""
        used = uses(self.workload, "backward")
        places = {use.block: place for place, use in enumerate(used)}
        begin, end = _by_segment(used, lambda use: use.first), _by_segment(used, lambda use: use.last)
        for position, segment in enumerate(self.workload.segments):
            if segment.phase == "backward":
                for block in begin.get(position, ()):
                    self._gather_from(places[block], used, prefetch, "backward")
                self.instructions += [Compute("recompute", again) for again in self.again.get(position, ())]
                self.instructions.append(Compute("backward", position))
                for block in end.get(position, ()):
                    self._reduce(block)
        # What backward does not reach is sent at its end.
        for block in reversed(range(len(self.blocks))):
            if block not in places:
                self._reduce(block)
        while self.reducing:
            self._advance()

    def _start(self, message: Message, block: int) -> int | None:
        """Queues a message, and returns its number; None where there is nothing to send."""
        if not is_sent(message):
            return None
        before = None
        for stage in self.blocks[block].stages(message):
            self.instructions.append(Start(replace(stage, count=1), (block,), before))
            before, self.started = self.started, self.started + 1
        return before

    def _spread(self, blocks: Sequence[int]) -> None:
        """Starts what is not started yet."""
        for block in blocks if self.is_first else ():
            if block not in self.spreading:
                number = self._start(self.blocks[block].update(), block)
                self.spreading[block] = -1 if number is None else number

    def _finish_spreading(self, blocks: Sequence[int], running: int) -> None:
        """Waits for blocks that are gathered from now on, and for the one that runs."""
        for block in blocks:
            is_needed = block == running or is_sent(self.blocks[block].forward())
            if is_needed and self.spreading.get(block, -1) >= 0:
                self.instructions.append(Wait(self.spreading[block]))
                self.spreading[block] = -1

    def _gather_from(self, place: int, used: Sequence[Use], prefetch: int, phase: Phase) -> None:
        """Waits for a block's parameters, and starts the gathers of those after it."""
        self._gather(used[place].block, phase)
        if (number := self.arriving.get(used[place].block, -1)) >= 0:
            self.instructions.append(Wait(number))
        for use in used[place + 1 : place + 1 + prefetch]:
            self._gather(use.block, phase)
        self.arriving[used[place].block] = -1

    def _gather(self, block: int, phase: Phase) -> None:
        gathers = [self.blocks[block].forward()] if phase == "forward" else self.blocks[block].gathers_again()
        if block not in self.arriving:
            for message in gathers:
                number = self._start(message, block)
                self.arriving[block] = -1 if number is None else number

    def _reduce(self, block: int) -> None:
        """Ends a block's backward."""
        self._advance()
        if self.blocks[block].sizes.num_trainable:
            self._go_on(block, self._stages(block))

    def _advance(self) -> None:
        """Takes each message in flight one stage further, the oldest first."""
        in_flight, self.reducing = self.reducing, []
        for number, block, stages in in_flight:
            self.instructions.append(Wait(number))
            self._go_on(block, stages)

    def _go_on(self, block: int, stages: Iterator[Message]) -> None:
        for message in stages:
            number = self._start(message, block)
            if number is not None:
                self.reducing.append((number, block, stages))
                return

    def _stages(self, block: int) -> Iterator[Message]:
        traffic = self.blocks[block]
        for message in (*traffic.reductions(), *(traffic.boundary() if self.is_last else ())):
            yield from traffic.stages(message)


def _by_segment(used: Sequence[Use], of_use: Callable[[Use], int]) -> Mapping[int, list[int]]:
    """Returns the blocks by a segment of their use, in order of their first."""
    found: dict[int, list[int]] = {}
    for use in sorted(used, key=lambda each: each.first):
        found.setdefault(of_use(use), []).append(use.block)
    return found


def _alone(shape: StepShape) -> Iterator[Instruction]:
    """Yields what no micro-batch runs beside: what all ranks agree on, and the update."""
    for message in control(shape):
        if is_sent(message):
            yield Start(message)
            yield Wait()
    yield Compute("update", -1)
