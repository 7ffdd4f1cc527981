"""The messages of the ideal schedule: each block gathers, reduces and spreads its parameters as one message each.

With P parameters of a block (P_t of them trained), M micro-batches and degrees p, s, g, o in a world of N:

    forward    all-gather      1 to p   c_p P            M times
    backward   all-gather      1 to s   c_p P            M times, unless kept from forward (s = 1)
    backward   reduce-scatter  1 to g   c_r P_t          M times
    boundary   reduce-scatter  g to o   c_r ceil(P_t/g)  once, as the last backward has each block's gradients
    boundary   all-reduce      o to N   c_r ceil(P_t/o)  once, after it
    update     all-gather      p to o   c_p ceil(P_t/p)  once, ahead of each block's first forward of the next step

A group of one rank sends nothing. A recomputed block is gathered once in backward, for its second forward and its
gradients together, so recomputation costs no traffic. A block through which no gradient flows has no backward gather.

Source: ZeRO (arXiv 1910.02054), section 7, for the four classic points; PaRO (arXiv 2310.06003), section 3, and AMSP
(arXiv 2311.00257), section V, for degrees of their own, and for gathers of the update beside the forward; PyTorch 2.13
torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `foreach_reduce`, all-reduces each block within the backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from costmodels.engine import Assignment, Cause, Message
from costmodels.states import StateWidths, num_block_params, shard_elements, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload

__all__ = ["BlockTraffic", "block_traffic", "is_sent", "traffic"]


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
    sent = [block.forward() for block in blocks]
    sent += [message for block in reversed(blocks) for message in block.backward()]
    sent += [message for block in reversed(blocks) for message in block.boundary()]
    sent += [block.update() for block in blocks]
    return _merged(message for message in sent if is_sent(message))


def block_traffic(workload: Workload, assignment: Assignment, shape: StepShape) -> tuple[BlockTraffic, ...]:
    """Returns what each block sends, in the order of `Workload.blocks`."""
    widths = state_widths(shape.precision, shape.optimizer)
    differentiated = {segment.block for segment in workload.segments if segment.phase == "backward"}
    return tuple(
        BlockTraffic(
            assignment[block.block_class], *num_block_params(workload, block), number in differentiated, shape, widths
        )
        for number, block in enumerate(workload.blocks)
    )


def is_sent(message: Message) -> bool:
    """Returns whether there is anything to send, and more than one rank to send it between."""
    return message.degree_from < message.degree_to and message.message_bytes > 0


@dataclass(frozen=True, slots=True)
class BlockTraffic:
    """One block's share of the table above, row by row."""

    strategy: Strategy
    num_params: int
    num_trainable: int
    differentiated: bool
    shape: StepShape
    widths: StateWidths

    def forward(self) -> Message:
        """Returns the gather before forward."""
        full_bytes = self.widths.parameter * self.num_params
        return Message("all_gather", 1, self.strategy.param_degree, full_bytes, self.shape.num_micro_batches, "forward")

    def backward(self) -> Iterator[Message]:
        """Yields the gather before backward, and the reduction of the gradients."""
        num_micro_batches = self.shape.num_micro_batches
        if self.differentiated:
            full_bytes = self.widths.parameter * self.num_params
            yield Message("all_gather", 1, self.strategy.secondary_degree, full_bytes, num_micro_batches, "backward")
        reduced_bytes = self.widths.gradient * self.num_trainable
        yield Message("reduce_scatter", 1, self.strategy.grad_degree, reduced_bytes, num_micro_batches, "backward")

    def boundary(self) -> Iterator[Message]:
        """Yields what the gradients of all micro-batches take from g to o, and from o to N."""
        grad_degree, optim_degree = self.strategy.grad_degree, self.strategy.optim_degree
        grad_bytes = self.widths.gradient * shard_elements(self.num_trainable, grad_degree)
        optim_bytes = self.widths.gradient * shard_elements(self.num_trainable, optim_degree)
        yield Message("reduce_scatter", grad_degree, optim_degree, grad_bytes, 1, "boundary", beside_backward=True)
        world_size = self.shape.world_size
        yield Message("all_reduce", optim_degree, world_size, optim_bytes, 1, "boundary", beside_backward=True)

    def update(self) -> Message:
        """Returns the gather of what the update changed."""
        param_degree, optim_degree = self.strategy.param_degree, self.strategy.optim_degree
        shard_bytes = self.widths.parameter * shard_elements(self.num_trainable, param_degree)
        return Message("all_gather", param_degree, optim_degree, shard_bytes, 1, "update", beside_forward=True)


def _merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Joins equal messages into one with their counts, in order of first appearance."""
    counts: dict[Message, int] = {}
    for message in messages:
        kind = replace(message, count=1)
        counts[kind] = counts.get(kind, 0) + message.count
    return tuple(replace(kind, count=count) for kind, count in counts.items())
