"""The messages of the ideal schedule: each block gathers, reduces and spreads its parameters as one message each.

With P parameters of a block (P_t of them trained), M micro-batches and degrees p, s, g, o in a world of N:

    forward    all-gather      1 to p   c_p P            M times
    backward   all-gather      1 to s   c_p P            M times, unless kept from forward (s = 1)
    backward   reduce-scatter  1 to g   c_r P_t          M times
    boundary   reduce-scatter  g to o   c_r P_t/g        once, as the last backward has each block's gradients
    boundary   all-reduce      o to N   c_r P_t/o        once, after it
    update     all-gather      p to o   c_p P_t/p        once, ahead of each block's first forward of the next step
    control    all-reduce      1 to N   4                once, of fp16: the norm of all gradients, which tells overflow

where all parameters divide. What does not is padded: P stands for the rows of all p shards, and P_t for all o slices
(`costmodels.fsdp.sizes`).

Where a strategy quantizes gathers or reductions over g, these rows are those of `costmodels.fsdp.quantized`.

A group of one rank sends nothing. A recomputed block is gathered once in backward, for its second forward and its
gradients together, so recomputation costs no traffic. A block that a forward does not run is not gathered in it, nor
in backward one through which no gradient flows; what is trained of them is reduced and spread all the same.

Source: ZeRO (arXiv 1910.02054), section 7, for the four classic points; PaRO (arXiv 2310.06003), section 3, and AMSP
(arXiv 2311.00257), section V, for degrees of their own, and for gathers of the update beside the forward; PyTorch 2.13
torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `foreach_reduce`, all-reduces each block within the backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from costmodels.engine import Assignment, Cause, Message
from costmodels.fsdp.hierarchical import stages
from costmodels.fsdp.quantized import quantized_gather, quantized_reduction
from costmodels.fsdp.sizes import BlockSizes, block_sizes
from costmodels.fsdp.uses import uses
from costmodels.states import FP32_BYTES, StateWidths, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload

__all__ = ["BlockTraffic", "block_traffic", "control", "gathered_blocks", "is_sent", "traffic"]


def traffic(workload: Workload, assignment: Assignment, shape: StepShape) -> tuple[Message, ...]:
    """Returns the messages that one rank takes part in during one optimizer step, in order of the phases.

    Args:
        workload: the traced step.
        assignment: one strategy per class of blocks, each nested in the world.
        shape: micro-batches and precision.
    """
    plain = tuple(replace(strategy, recompute="none") for strategy in assignment)
    sent = _of_one_micro_batch(workload, plain, replace(shape, micro_batch_size=1, num_micro_batches=1))
    times = shape.num_micro_batches
    return tuple(replace(each, count=each.count * times) if each.cause in _EACH_TIME else each for each in sent)


_EACH_TIME: tuple[Cause, ...] = ("forward", "backward")
"""What is sent in every micro-batch."""


@lru_cache(maxsize=32)
def _of_one_micro_batch(workload: Workload, assignment: Assignment, shape: StepShape) -> tuple[Message, ...]:
    """Returns the messages of a step of one micro-batch, which those of more differ from by their number alone."""
    blocks = block_traffic(workload, assignment, shape)
    sent = [stage for block in blocks if block.is_run for stage in block.stages(block.forward())]
    sent += [stage for block in reversed(blocks) for message in block.backward() for stage in block.stages(message)]
    sent += [stage for block in reversed(blocks) for message in block.boundary() for stage in block.stages(message)]
    sent += [stage for block in blocks for stage in block.stages(block.update())]
    return _merged(message for message in (*sent, *control(shape)) if is_sent(message))


def block_traffic(workload: Workload, assignment: Assignment, shape: StepShape) -> tuple[BlockTraffic, ...]:
    """Returns what each block sends, in the order of `Workload.blocks`."""
    widths = state_widths(shape.precision, shape.optimizer)
    run, differentiated = gathered_blocks(workload)
    return tuple(
        BlockTraffic(assignment[block.block_class], sizes, number in run, number in differentiated, shape, widths)
        for number, (block, sizes) in enumerate(zip(workload.blocks, block_sizes(workload), strict=True))
    )


def gathered_blocks(workload: Workload) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the blocks whose parameters forward needs, and those that backward does."""
    run = frozenset(use.block for use in uses(workload, "forward"))
    return run, frozenset(use.block for use in uses(workload, "backward"))


def control(shape: StepShape) -> tuple[Message, ...]:
    """Returns what tells all ranks of an overflow."""
    if shape.precision != "fp16":
        return ()
    return (Message("all_reduce", 1, shape.world_size, FP32_BYTES, 1, "control"),)


def is_sent(message: Message) -> bool:
    """Returns whether there is anything to send, and more than one rank to send it between."""
    return message.degree_from < message.degree_to and message.message_bytes > 0


@dataclass(frozen=True, slots=True)
class BlockTraffic:
    """One block's share of the table above, row by row."""

    strategy: Strategy
    sizes: BlockSizes
    is_run: bool
    """In forward."""
    differentiated: bool
    shape: StepShape
    widths: StateWidths

    def forward(self) -> Message:
        """Returns the gather before forward."""
        return self._gather(self.strategy.param_degree, "forward")

    def backward(self) -> Iterator[Message]:
        """Yields the gather before backward, and the reduction of the gradients."""
        yield from self.gathers_again()
        yield from self.reductions()

    def gathers_again(self) -> Iterator[Message]:
        """Yields the gather before backward."""
        if self.differentiated:
            yield self._gather(self.strategy.secondary_degree, "backward")

    def reductions(self) -> Iterator[Message]:
        """Yields what the gradients of one micro-batch take to g, one after the other."""
        strategy = self.strategy
        reduced_bytes = self.widths.gradient * strategy.optim_degree * self._slice_elements
        exact = Message(
            "reduce_scatter", 1, strategy.grad_degree, reduced_bytes, self.shape.num_micro_batches, "backward"
        )
        if strategy.quantized_gradients:
            yield from quantized_reduction(exact, self.sizes, strategy, self.shape)
        else:
            yield exact

    def boundary(self) -> Iterator[Message]:
        """Yields what the gradients of all micro-batches take from g to o, and from o to N."""
        grad_degree, optim_degree = self.strategy.grad_degree, self.strategy.optim_degree
        optim_bytes = self.widths.gradient * self._slice_elements
        grad_bytes = optim_degree // grad_degree * optim_bytes
        yield Message("reduce_scatter", grad_degree, optim_degree, grad_bytes, 1, "boundary", beside_backward=True)
        world_size = self.shape.world_size
        yield Message("all_reduce", optim_degree, world_size, optim_bytes, 1, "boundary", beside_backward=True)

    def update(self) -> Message:
        """Returns the gather of what the update changed."""
        param_degree, optim_degree = self.strategy.param_degree, self.strategy.optim_degree
        shard_bytes = self.widths.parameter * optim_degree // param_degree * self._slice_elements
        return Message("all_gather", param_degree, optim_degree, shard_bytes, 1, "update", beside_forward=True)

    def stages(self, message: Message) -> Iterator[Message]:
        """Yields what one of these messages is sent as: itself, or a message on each level."""
        if self.strategy.hierarchical and is_sent(message):
            # Parameters and their gradients are of one type.
            yield from stages(message, self.shape.level_sizes, self.widths.gradient)
        else:
            yield message

    def _gather(self, degree: int, cause: Cause) -> Message:
        gathered_bytes = self.widths.parameter * self.sizes.gathered_elements(self.strategy.param_degree)
        exact = Message("all_gather", 1, degree, gathered_bytes, self.shape.num_micro_batches, cause)
        return quantized_gather(exact, self.sizes, self.strategy) if self.strategy.quantized_weights else exact

    @property
    def _slice_elements(self) -> int:
        return self.sizes.slice_elements(self.strategy.param_degree, self.strategy.optim_degree)


def _merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Joins equal messages into one with their counts, in order of first appearance."""
    counts: dict[Message, int] = {}
    for message in messages:
        kind = replace(message, count=1)
        counts[kind] = counts.get(kind, 0) + message.count
    return tuple(replace(kind, count=count) for kind, count in counts.items())
