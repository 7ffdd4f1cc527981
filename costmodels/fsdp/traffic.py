"""The messages of the ideal schedule: each block gathers, reduces and spreads its parameters as one message each.

With P parameters of a block (P_t of them trained), M micro-batches and degrees p, s, g, o in a world of N:

    forward    all-gather      1 to p   c_p P            M times
    backward   all-gather      1 to s   c_p P            M times, unless kept from forward (s = 1)
    backward   reduce-scatter  1 to g   c_r P_t          M times
    boundary   reduce-scatter  g to o   c_r ceil(P_t/g)  once
    boundary   all-reduce      o to N   c_r ceil(P_t/o)  once
    update     all-gather      p to o   c_p ceil(P_t/p)  once

A group of one rank sends nothing. A recomputed block is gathered once in backward, for its second forward and its
gradients together, so recomputation costs no traffic. A block through which no gradient flows has no backward gather.

Source: ZeRO (arXiv 1910.02054), section 7, for the four classic points; PaRO (arXiv 2310.06003), section 3, and AMSP
(arXiv 2311.00257), section V, for degrees of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from costmodels.engine import Assignment, Message
from costmodels.states import num_block_params, shard_elements, state_widths
from costmodels.strategy import StepShape
from costmodels.workload import Workload

__all__ = ["traffic"]


def traffic(workload: Workload, assignment: Assignment, shape: StepShape) -> tuple[Message, ...]:
    """Returns the messages that one rank takes part in during one optimizer step, in order of the phases.

    Args:
        workload: the traced step.
        assignment: one strategy per class of blocks, each nested in the world.
        shape: micro-batches and precision.
    """
    forward = range(len(workload.blocks))
    backward = range(len(workload.blocks) - 1, -1, -1)
    sent = [message for block in forward for message in _forward(workload, block, assignment, shape)]
    differentiated = {segment.block for segment in workload.segments if segment.phase == "backward"}
    sent += [message for block in backward for message in _backward(workload, block, assignment, shape, differentiated)]
    sent += [message for block in backward for message in _boundary(workload, block, assignment, shape)]
    sent += [message for block in forward for message in _update(workload, block, assignment, shape)]
    return _merged(message for message in sent if message.degree_from < message.degree_to and message.message_bytes)


def _forward(workload: Workload, block: int, assignment: Assignment, shape: StepShape) -> Iterator[Message]:
    strategy = assignment[workload.blocks[block].block_class]
    num_params, _ = num_block_params(workload, workload.blocks[block])
    full_bytes = state_widths(shape.precision, shape.optimizer).parameter * num_params
    yield Message("all_gather", 1, strategy.param_degree, full_bytes, shape.num_micro_batches, "forward")


def _backward(
    workload: Workload, block: int, assignment: Assignment, shape: StepShape, differentiated: set[int]
) -> Iterator[Message]:
    strategy = assignment[workload.blocks[block].block_class]
    num_params, num_trainable = num_block_params(workload, workload.blocks[block])
    widths = state_widths(shape.precision, shape.optimizer)
    if block in differentiated:
        full_bytes = widths.parameter * num_params
        yield Message("all_gather", 1, strategy.secondary_degree, full_bytes, shape.num_micro_batches, "backward")
    reduced_bytes = widths.gradient * num_trainable
    yield Message("reduce_scatter", 1, strategy.grad_degree, reduced_bytes, shape.num_micro_batches, "backward")


def _boundary(workload: Workload, block: int, assignment: Assignment, shape: StepShape) -> Iterator[Message]:
    strategy = assignment[workload.blocks[block].block_class]
    _, num_trainable = num_block_params(workload, workload.blocks[block])
    width = state_widths(shape.precision, shape.optimizer).gradient
    grad_degree, optim_degree = strategy.grad_degree, strategy.optim_degree
    grad_bytes = width * shard_elements(num_trainable, grad_degree)
    optim_bytes = width * shard_elements(num_trainable, optim_degree)
    yield Message("reduce_scatter", grad_degree, optim_degree, grad_bytes, 1, "boundary")
    yield Message("all_reduce", optim_degree, shape.world_size, optim_bytes, 1, "boundary")


def _update(workload: Workload, block: int, assignment: Assignment, shape: StepShape) -> Iterator[Message]:
    strategy = assignment[workload.blocks[block].block_class]
    _, num_trainable = num_block_params(workload, workload.blocks[block])
    width = state_widths(shape.precision, shape.optimizer).parameter
    shard_bytes = width * shard_elements(num_trainable, strategy.param_degree)
    yield Message("all_gather", strategy.param_degree, strategy.optim_degree, shard_bytes, 1, "update")


def _merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Joins equal messages into one with their counts, in order of first appearance."""
    counts: dict[Message, int] = {}
    for message in messages:
        key = Message(
            message.operation, message.degree_from, message.degree_to, message.message_bytes, 1, message.cause
        )
        counts[key] = counts.get(key, 0) + message.count
    return tuple(
        Message(key.operation, key.degree_from, key.degree_to, key.message_bytes, count, key.cause)
        for key, count in counts.items()
    )
