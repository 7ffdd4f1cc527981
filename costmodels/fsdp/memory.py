"""What the ideal schedule holds beside activations: sharded states, and a window of gathered blocks and gradients.

At rest: the model states, c_p P/p + secondary copy + c_g P/g + k P/o per block; gradients accumulate in a flat shard
that stays. In a segment, beyond that:

- gathered parameters: c_p P of the running block and of the next one, whose gather runs meanwhile; a kept block
  (s = 1 < p) from its forward to the end of its backward;
- gradients: those of the running block that are complete, until they are reduced over g > 1; for g = 1 the one that
  autograd makes before it is added to the shard;
- buffers: the flat input c_r P_t of the reduction in flight, of the block before, and in all of backward an output, as
  large as the largest c_r P_t/g of any block.

In the update: the reduced gradients as fp32 slices of degree o, and the largest block being spread between p and o.

What runs beside compute once in a step holds nothing more: the boundary's reductions leave their shards within the
gradients that they are of, and gathers of updated parameters fill the parameters' own shards.

Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (one gather ahead; the reduce-scatter
input of a block lives until the next block's reduction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from costmodels.engine import Assignment, Components, Course, EngineMemory
from costmodels.fsdp.holds import Arrival, arrivals, holds, manner_of
from costmodels.fsdp.sizes import BlockSizes, block_sizes
from costmodels.fsdp.states import fsdp_state_bytes
from costmodels.states import FP32_BYTES, StateWidths, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload

__all__ = ["memory", "output_bytes", "slice_bytes", "spread_bytes"]


def memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    """Returns what the fullest rank holds at rest, in each segment and in the update, in bytes.

    Args:
        workload: the traced step.
        assignment: one strategy per class of blocks, each nested in the world.
        shape: precision and optimizer.
    """
    # Neither micro-batches nor recomputation change what is held beside activations: all of them share one answer.
    plain = tuple(replace(strategy, recompute="none") for strategy in assignment)
    return _memory(workload, plain, replace(shape, micro_batch_size=1, num_micro_batches=1))


@lru_cache(maxsize=32)
def _memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    widths = state_widths(shape.precision, shape.optimizer)
    states = fsdp_state_bytes(workload, assignment, shape)
    at_rest = Components(
        parameters=states.parameters + states.secondary,
        gradients=states.gradients,
        optimizer_states=states.optimizer_states,
    )
    strategies = [assignment[block.block_class] for block in workload.blocks]
    each = list(zip(block_sizes(workload), strategies, strict=True))
    throughout, course = _courses(
        workload, strategies, widths, max((output_bytes(*one, widths) for one in each), default=0)
    )
    largest = max((sizes.num_params for sizes in block_sizes(workload)), default=0)
    return EngineMemory(
        at_rest=at_rest,
        # Blocks are built one after the other, each in fp32 before it is sharded.
        init_peak_bytes=at_rest.parameters + at_rest.optimizer_states + FP32_BYTES * largest,
        throughout=throughout,
        course=course,
        during_update=Components(
            optimizer_step=sum(slice_bytes(*one, shape) for one in each),
            buffers=max((spread_bytes(*one, widths) for one in each), default=0),
        ),
    )


def output_bytes(sizes: BlockSizes, strategy: Strategy, widths: StateWidths) -> int:
    """Returns what a block's reduction in backward leaves: its shard of the gradients, before it is added to others."""
    return widths.gradient * sizes.accumulated_elements(*strategy.degrees) if strategy.grad_degree > 1 else 0


def slice_bytes(sizes: BlockSizes, strategy: Strategy, shape: StepShape) -> int:
    """Returns a block's reduced gradients in the update, as fp32 slices of degree o; fp32 ones stay where they are."""
    if shape.precision == "fp32":
        return 0
    return FP32_BYTES * sizes.slice_elements(strategy.param_degree, strategy.optim_degree)


def spread_bytes(sizes: BlockSizes, strategy: Strategy, widths: StateWidths) -> int:
    """Returns what a block holds while its updated parameters are spread between p and o."""
    param_degree, optim_degree = strategy.param_degree, strategy.optim_degree
    if optim_degree == param_degree:
        return 0
    return widths.parameter * optim_degree // param_degree * sizes.slice_elements(param_degree, optim_degree)


def _courses(
    workload: Workload, strategies: Sequence[Strategy], widths: StateWidths, staged_bytes: int
) -> tuple[tuple[Components, ...], Course]:
    """Returns what is held throughout each segment, and the gradients that come and wait in it."""
    manners = [manner_of(strategy) for strategy in strategies]
    held = [Components(buffers=staged_bytes if each.phase == "backward" else 0) for each in workload.segments]
    for hold in holds(workload, widths):
        if hold.holds(manners[hold.block]):
            for position in range(hold.first, hold.last + 1):
                held[position] += Components(**{hold.component: hold.num_bytes})
    coming: list[list[Arrival]] = [[] for _ in workload.segments]
    for arrival in arrivals(workload, widths):
        coming[arrival.segment].append(arrival)
    courses = []
    waiting: list[Arrival] = []
    for position in range(len(held)):
        waiting = [arrival for arrival in waiting if arrival.until >= position]
        course = [sum(each.num_bytes for each in waiting)]
        for arrival in coming[position]:
            course.append(course[-1] + arrival.num_bytes)
            if manners[arrival.block].is_reduced:
                waiting.append(arrival)
            course.append(sum(each.num_bytes for each in waiting))
        courses.append(tuple(Components(gradients=num_bytes) for num_bytes in course))
    return tuple(held), Course(tuple(courses))
