"""What the ideal schedule holds beside activations: sharded states, and a window of gathered blocks and gradients.

At rest: the model states, c_p P/p + secondary copy + c_g P/g + k P/o per block; gradients accumulate in a flat shard
that stays. In a segment, beyond that:

- gathered parameters: c_p P of the running block and of the next one, whose gather runs meanwhile; a kept block
  (s = 1 < p) from its forward to the end of its backward;
- gradients: those of the running block that are complete, until they are reduced over g > 1; for g = 1 the one that
  autograd makes before it is added to the shard;
- buffers: the reduction in flight of the block before, its flat input c_r P_t and its output c_r P_t/g.

In the update: the reduced gradients as fp32 slices of degree o, and the largest block being spread between p and o.

Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (one gather ahead; the reduce-scatter
input of a block lives until the next block's reduction).
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodels.engine import Assignment, Components, EngineMemory
from costmodels.states import (
    FP32_BYTES,
    StateWidths,
    model_state_bytes,
    num_block_params,
    shard_elements,
    state_widths,
)
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Phase, Segment, Workload

__all__ = ["memory"]


@dataclass(frozen=True, slots=True)
class _Use:
    """The segments in which a block's parameters are needed in one phase, first to last."""

    block: int
    first: int
    last: int


def memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    """Returns what the fullest rank holds at rest, in each segment and in the update, in bytes.

    Args:
        workload: the traced step.
        assignment: one strategy per class of blocks, each nested in the world.
        shape: precision and optimizer.
    """
    widths = state_widths(shape.precision, shape.optimizer)
    states = model_state_bytes(workload, assignment, shape)
    at_rest = Components(
        parameters=states.parameters + states.secondary,
        gradients=states.gradients,
        optimizer_states=states.optimizer_states,
    )
    forward, backward = _uses(workload, "forward"), _uses(workload, "backward")
    gathered = _gathered_bytes(workload, assignment, widths, forward, backward)
    unreduced, in_flight = _gradients(workload, assignment, widths, backward)
    courses = tuple(
        tuple(
            Components(gathered_parameters=full_bytes, gradients=held_bytes, buffers=flight_bytes)
            for held_bytes in held
        )
        for full_bytes, held, flight_bytes in zip(gathered, unreduced, in_flight, strict=True)
    )
    largest = max((num_block_params(workload, block)[0] for block in workload.blocks), default=0)
    return EngineMemory(
        at_rest=at_rest,
        # Blocks are built one after the other, each in fp32 before it is sharded.
        init_peak_bytes=at_rest.parameters + at_rest.optimizer_states + FP32_BYTES * largest,
        during_segment=tuple(max(course, key=lambda held: held.total_bytes) for course in courses),
        course=courses,
        during_update=_during_update(workload, assignment, shape, widths),
    )


def _gathered_bytes(
    workload: Workload, assignment: Assignment, widths: StateWidths, forward: list[_Use], backward: list[_Use]
) -> list[int]:
    """Gathered parameters in each segment; the gather of a block starts with the block before it in its phase."""
    held = [0] * len(workload.segments)
    backward_end = {use.block: use.last for use in backward}
    for uses in (forward, backward):
        start = None
        for use in uses:
            block = workload.blocks[use.block]
            strategy = assignment[block.block_class]
            if strategy.param_degree == 1 or (uses is backward and _kept(strategy)):
                continue
            end = backward_end.get(use.block, use.last) if _kept(strategy) else use.last
            full_bytes = widths.parameter * num_block_params(workload, block)[0]
            _hold(held, use.first if start is None else start, end, full_bytes)
            start = use.first
    return held


def _gradients(
    workload: Workload, assignment: Assignment, widths: StateWidths, backward: list[_Use]
) -> tuple[list[list[int]], list[int]]:
    """Unreduced gradients through the course of each segment, and reductions in flight in each."""
    reduced_in: dict[int, int] = {}
    in_flight = [0] * len(workload.segments)
    done = sorted(backward, key=lambda use: (use.last, use.first))
    for index, use in enumerate(done):
        block = workload.blocks[use.block]
        _, num_trainable = num_block_params(workload, block)
        grad_degree = assignment[block.block_class].grad_degree
        if grad_degree > 1:
            reduced_in |= dict.fromkeys(block.parameters, use.last)
            end = done[index + 1].last if index + 1 < len(done) else use.last
            flat_bytes = widths.gradient * (num_trainable + shard_elements(num_trainable, grad_degree))
            _hold(in_flight, use.last, end, flat_bytes)
    return _courses(workload, widths, reduced_in), in_flight


def _courses(workload: Workload, widths: StateWidths, reduced_in: dict[int, int]) -> list[list[int]]:
    """Bytes of unreduced gradients before each is complete, as it comes, after it, and so on, in each segment.

    `reduced_in` has the segment at whose end a parameter's gradient is reduced; others are added to a shard at once.
    """
    courses = []
    waiting: dict[int, int] = {}
    for position, segment in enumerate(workload.segments):
        course = [sum(waiting.values())]
        for index in segment.gradients:
            arriving_bytes = widths.gradient * workload.parameters[index].num_elements
            course.append(sum(waiting.values()) + arriving_bytes)
            if reduced_in.get(index, -1) >= position:
                waiting[index] = arriving_bytes
            course.append(sum(waiting.values()))
        courses.append(course)
        waiting = {index: num_bytes for index, num_bytes in waiting.items() if reduced_in[index] > position}
    return courses


def _during_update(workload: Workload, assignment: Assignment, shape: StepShape, widths: StateWidths) -> Components:
    slices_bytes = spread_bytes = 0
    for block in workload.blocks:
        strategy = assignment[block.block_class]
        _, num_trainable = num_block_params(workload, block)
        if shape.precision != "fp32" or strategy.optim_degree > strategy.grad_degree:
            slices_bytes += FP32_BYTES * shard_elements(num_trainable, strategy.optim_degree)
        if strategy.optim_degree > strategy.param_degree:
            shard_bytes = widths.parameter * shard_elements(num_trainable, strategy.param_degree)
            spread_bytes = max(spread_bytes, shard_bytes)
    return Components(optimizer_step=slices_bytes, buffers=spread_bytes)


def _uses(workload: Workload, phase: Phase) -> list[_Use]:
    """The blocks whose parameters a phase needs, in order of their gathers."""
    owners = {index: number for number, block in enumerate(workload.blocks) for index in block.parameters}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, segment in enumerate(workload.segments):
        if segment.phase == phase:
            for block in _needed(workload, segment, owners):
                first.setdefault(block, position)
                last[block] = position
    return [_Use(block, first[block], last[block]) for block in first]


def _needed(workload: Workload, segment: Segment, owners: dict[int, int]) -> list[int]:
    """Blocks whose parameters a segment reads: its own, and those that it borrows (tied ones)."""
    own = [segment.block] if workload.blocks[segment.block].parameters else []
    read = [owners[index] for call in segment.calls for index in call.parameters]
    return list(dict.fromkeys(own + read))


def _kept(strategy: Strategy) -> bool:
    return strategy.secondary_degree == 1 < strategy.param_degree


def _hold(amounts: list[int], first: int, last: int, num_bytes: int) -> None:
    for position in range(first, last + 1):
        amounts[position] += num_bytes
