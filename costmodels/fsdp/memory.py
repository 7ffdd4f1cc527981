"""What the fsdp engine holds beside activations: sharded states, and a window of gathered blocks and gradients.

At rest: the model states, c_p P/p + c_g P/g + k P/o per block, padded; gradients accumulate in a flat shard that stays;
and the first blocks' spread, which the update has started. In a segment, beyond that, what `costmodels.fsdp.holds`
tells: gathered parameters of the running block and of those whose gathers run meanwhile; gradients of the running
block that are complete, until they are reduced over g > 1, for g = 1 the one that autograd makes before it is added to
those that stay; flat messages.

In the update: of half precision the reduced gradients as fp32 slices of degree o; fp32 ones are updated from where they
were reduced to. What runs beside compute once in a step holds nothing more: the boundary's reductions leave their
shards within the gradients that they are of.

While it is built, block by block, the inner ones first: a block whole in fp32 beside those that are sharded already.

Source: `runtime/fsdp/` (shard.py, materialize.py, unit.py, optimizer.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from costmodels.engine import Assignment, Components, Course, EngineMemory
from costmodels.fsdp.held_bytes import held_bytes, spread_bytes
from costmodels.fsdp.holds import Holds, Kind, Stay, arrivals, holds, manner_of
from costmodels.fsdp.quantized import residual_bytes
from costmodels.fsdp.sizes import BlockSizes, block_sizes
from costmodels.fsdp.staged import staged_bytes
from costmodels.fsdp.states import block_state_bytes, fsdp_state_bytes
from costmodels.states import FP32_BYTES, StateWidths, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload

__all__ = ["memory", "slice_bytes"]


def memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    """Returns what the fullest rank holds at rest, in each segment and in the update, in bytes.

    Args:
        workload: the traced step.
        assignment: one strategy per class of blocks, each nested in the world.
        shape: precision, optimizer and device: gloo on a CPU copies what it sends.
    """
    # Neither micro-batches nor recomputation change what is held beside activations: all of them share one answer.
    plain = tuple(replace(strategy, recompute="none") for strategy in assignment)
    return _memory(workload, plain, replace(shape, micro_batch_size=1, num_micro_batches=1))


@lru_cache(maxsize=32)
def _memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    widths = state_widths(shape.precision, shape.optimizer)
    strategies = tuple(assignment[block.block_class] for block in workload.blocks)
    walk = _Walk(holds(workload, shape.device == "cpu"), strategies, block_sizes(workload), widths)
    states = fsdp_state_bytes(workload, assignment, shape)
    staged = Components(buffers=staged_bytes(workload, assignment, shape))
    throughout = tuple(held + staged for held in walk.throughout(len(workload.segments)))
    waiting = _Waiting(workload, strategies, widths)
    update = Components(
        optimizer_step=sum(slice_bytes(*each, shape) for each in zip(walk.sizes, strategies, strict=True)),
        buffers=walk.at_rest_bytes if shape.device == "cpu" else 0,
    )
    ended = list(walk.endings(len(workload.segments) - 1, throughout[-1:], waiting))
    left_out_bytes = sum(residual_bytes(*each, shape) for each in zip(walk.sizes, strategies, strict=True))
    return EngineMemory(
        at_rest=Components(
            states.parameters,
            states.gradients + left_out_bytes,
            states.optimizer_states,
            buffers=walk.at_rest_bytes,
        ),
        init_peak_bytes=_init_peak_bytes(workload, strategies, shape),
        throughout=throughout,
        course=waiting.course,
        entering_segment=tuple(_greatest(walk.entering(k, throughout, waiting)) for k in range(len(throughout))),
        during_update=_greatest([update, *ended]),
    )


def slice_bytes(sizes: BlockSizes, strategy: Strategy, shape: StepShape) -> int:
    """Returns a block's reduced gradients in the update, as fp32 slices of degree o; fp32 ones stay where they are."""
    if shape.precision == "fp32":
        return 0
    return FP32_BYTES * sizes.slice_elements(strategy.param_degree, strategy.optim_degree)


@dataclass(frozen=True, slots=True)
class _Walk:
    """What blocks hold by their strategies, beyond what they hold at rest."""

    holds: Holds
    strategies: Sequence[Strategy]
    sizes: Sequence[BlockSizes]
    widths: StateWidths

    @property
    def at_rest_bytes(self) -> int:
        """Of what is spread."""
        blocks = self.holds.at_rest
        return sum(spread_bytes(self.sizes[block], self.strategies[block], self.widths) for block in blocks)

    def throughout(self, num_segments: int) -> tuple[Components, ...]:
        """Returns what is held throughout each segment; what is spread at rest is not there any more."""
        rows = [[0, -self.at_rest_bytes], *([0, 0] for _ in range(num_segments))]
        for stay, first, last in self.holds.throughout:
            num_bytes, is_buffer = self._bytes(stay), _is_buffer(stay.kind)
            rows[first][is_buffer] += num_bytes
            rows[last + 1][is_buffer] -= num_bytes
        found, now = [], [0, 0]
        for row in rows[:num_segments]:
            now = [now[0] + row[0], now[1] + row[1]]
            found.append(Components(gathered_parameters=now[0], buffers=now[1]))
        return tuple(found)

    def entering(self, segment: int, throughout: Sequence[Components], waiting: _Waiting) -> Iterator[Components]:
        """Yields the moments as a segment begins: those of blocks that begin, and of blocks that have just ended."""
        before = Components(gradients=waiting.bytes_before(segment))
        yield throughout[segment] + before
        for stays in self.holds.beginnings[segment]:
            yield throughout[segment] + self._components(stays) + before
        if segment:
            yield from self.endings(segment - 1, throughout[segment - 1 : segment], waiting)

    def endings(self, segment: int, throughout: Sequence[Components], waiting: _Waiting) -> Iterator[Components]:
        """Yields the moments of blocks whose backward ends with a segment, given what is held throughout it."""
        for held in throughout:
            for ending in self.holds.endings[segment]:
                over = [waiting.bytes_of(block) for block in ending.before]
                filled = waiting.bytes_after(segment) - sum(over)
                sent = filled - waiting.bytes_of(ending.block)
                yield held + self._components(ending.filled) + Components(gradients=filled)
                yield held + self._components(ending.sent) + Components(gradients=sent)

    def _components(self, stays: Iterable[Stay]) -> Components:
        totals = [0, 0]
        for stay in stays:
            totals[_is_buffer(stay.kind)] += self._bytes(stay)
        return Components(gathered_parameters=totals[0], buffers=totals[1])

    def _bytes(self, stay: Stay) -> int:
        return stay.times * held_bytes(stay.kind, self.sizes[stay.block], self.strategies[stay.block], self.widths)


def _is_buffer(kind: Kind) -> bool:
    return kind not in ("anew", "kept", "partial")


class _Waiting:
    """The gradients that come and wait."""

    def __init__(self, workload: Workload, strategies: Sequence[Strategy], widths: StateWidths) -> None:
        num_segments = len(workload.segments)
        self._of: dict[int, int] = {}
        change = [0] * (num_segments + 1)
        courses: list[list[int]] = [[0] for _ in range(num_segments)]
        for arrival in arrivals(workload):
            course, num_bytes = courses[arrival.segment], widths.gradient * arrival.elements
            waits = num_bytes if manner_of(strategies[arrival.block]).reducing == "each" else 0
            course += [course[-1] + num_bytes, course[-1] + waits]
            self._of[arrival.block] = self._of.get(arrival.block, 0) + waits
            if arrival.until > arrival.segment:
                change[arrival.segment + 1] += waits
                change[arrival.until + 1] -= waits
        self._before = [sum(change[: number + 1]) for number in range(num_segments)]
        self._after = [before + course[-1] for before, course in zip(self._before, courses, strict=True)]
        self.course = Course(
            tuple(
                tuple(Components(gradients=before + num_bytes) for num_bytes in course)
                for before, course in zip(self._before, courses, strict=True)
            )
        )

    def bytes_before(self, segment: int) -> int:
        """Returns the bytes that wait as a segment begins."""
        return self._before[segment]

    def bytes_after(self, segment: int) -> int:
        """Returns the same as it ends, before its blocks are reduced."""
        return self._after[segment]

    def bytes_of(self, block: int) -> int:
        """Returns the bytes of a block's gradients that wait when it ends."""
        return self._of.get(block, 0)


def _greatest(moments: Iterable[Components]) -> Components:
    return max(moments, key=lambda held: held.total_bytes)


def _init_peak_bytes(workload: Workload, strategies: Sequence[Strategy], shape: StepShape) -> int:
    """Returns the greatest bytes while blocks are made, and at last with the fp32 copies that the optimizer makes."""
    widths, sizes = state_widths(shape.precision, shape.optimizer), block_sizes(workload)
    numbers = [number for number, block in enumerate(workload.blocks) if block.parameters]
    numbers.sort(key=lambda number: (-_depth(workload.blocks[number].name), min(workload.blocks[number].parameters)))
    held = peak = copies = 0
    for number in numbers:
        states = block_state_bytes(sizes[number], strategies[number], widths)
        whole = sizes[number].num_params
        cast_bytes = _cast_bytes(sizes[number], widths) if widths.master else 0
        sharded_bytes = states.parameters if strategies[number].param_degree > 1 else 0
        peak = max(peak, held + FP32_BYTES * whole + cast_bytes, held + widths.parameter * whole + sharded_bytes)
        held += states.parameters + states.gradients + residual_bytes(sizes[number], strategies[number], shape)
        copies += widths.master * sizes[number].slice_elements(
            strategies[number].param_degree, strategies[number].optim_degree
        )
    return max(peak, held + copies)


def _cast_bytes(sizes: BlockSizes, widths: StateWidths) -> int:
    """Returns what is held at most beyond the fp32 parameters, as they are cast one after the other."""
    most = less = 0
    for each in sizes.parameters:
        elements = each.num_rows * each.row_elements
        most = max(most, widths.parameter * elements - less)
        less += (FP32_BYTES - widths.parameter) * elements
    return most


def _depth(name: str) -> int:
    return name.count(".") + 1 if name else 0
