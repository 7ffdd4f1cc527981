"""Fills the table of per-class choices: what each strategy costs each block, as whole ns and bytes.

Costs come from the functions that predict a plan (`costmodels.fsdp`, `costmodels.compute`), block by block; a total of
the table is the exact prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from costmodels.communication import sum_messages
from costmodels.compute import UPDATE_NS, Computed, overlappable_ns, segment_ns, update_width
from costmodels.engine import Message
from costmodels.fsdp.holds import Manner, manner_of
from costmodels.fsdp.memory import output_bytes, slice_bytes, spread_bytes
from costmodels.fsdp.traffic import BlockTraffic, is_sent
from costmodels.states import num_block_params, state_bytes, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload
from planner.block_table import BlockCost, BlockGroup, BlockTable
from planner.block_walk import stretches
from planner.machine import Machine


class _Kind(NamedTuple):
    """What equal blocks have in common."""

    block_class: int
    num_params: int
    num_trainable: int
    differentiated: bool
    recomputable: bool
    forward: Computed


def estimate_blocks(
    workload: Workload,
    machine: Machine,
    strategies: Iterable[Strategy],
    shape: StepShape,
    may_recompute: tuple[bool, ...],
) -> BlockTable:
    """Returns what every strategy costs every block of the ideal schedule.

    Args:
        workload: The traced step.
        machine: Links and devices.
        strategies: Candidates for each block, in the order that breaks ties.
        shape: The micro-batch.
        may_recompute: What can be chosen for blocks that can be recomputed: (False,), (True,) or both.
    """
    candidates = tuple(strategies)
    compute = _compute(workload, machine, shape)
    kinds: dict[_Kind, list[int]] = {}
    for index, kind in enumerate(_kinds(workload, compute)):
        kinds.setdefault(kind, []).append(index)
    groups = tuple(
        _group(kind, tuple(blocks), machine, candidates, shape, may_recompute) for kind, blocks in kinds.items()
    )
    forward, backward = (
        _sum(computed for phase, computed in compute.items() if phase[0] == name) for name in ("forward", "backward")
    )
    times = shape.num_micro_batches
    return BlockTable(
        shape=shape,
        groups=groups,
        forward_ns=_bounds(forward, times),
        backward_ns=_bounds(backward, times),
        stretches=stretches(workload, groups, shape),
        always_bytes=workload.buffer_bytes,
    )


def _bounds(computed: Computed, times: int) -> tuple[int, int]:
    return ((computed.duration_ns - computed.overlappable_ns) * times, computed.duration_ns * times)


def _sum(parts: Iterable[Computed]) -> Computed:
    return sum(parts, Computed())


def _compute(workload: Workload, machine: Machine, shape: StepShape) -> dict[tuple[str, int], Computed]:
    """Returns the compute of each (phase, block) in one micro-batch."""
    found: dict[tuple[str, int], Computed] = {}
    for segment in workload.segments:
        duration_ns = segment_ns(segment, shape.micro_batch_size, machine.speed)
        key = (segment.phase, segment.block)
        found[key] = found.get(key, Computed()) + Computed(duration_ns, overlappable_ns(duration_ns, machine.speed))
    return found


def _kinds(workload: Workload, compute: dict[tuple[str, int], Computed]) -> Iterable[_Kind]:
    for index, block in enumerate(workload.blocks):
        yield _Kind(
            block.block_class,
            *num_block_params(workload, block),
            ("backward", index) in compute,
            block.recomputable,
            compute.get(("forward", index), Computed()) if block.recomputable else Computed(),
        )


def _group(
    kind: _Kind,
    blocks: tuple[int, ...],
    machine: Machine,
    strategies: Sequence[Strategy],
    shape: StepShape,
    may_recompute: tuple[bool, ...],
) -> BlockGroup:
    recomputes = may_recompute if kind.recomputable else (False,)
    plain = _undominated(_costs(kind, machine, strategies, shape))
    costs = [_recomputed(cost, kind, shape, recompute) for cost in plain for recompute in recomputes]
    manners = tuple(sorted({manner_of(cost.strategy) for cost in costs}, key=_place))
    numbered = [replace(cost, manner=manners.index(manner_of(cost.strategy))) for cost in costs]
    return BlockGroup(
        kind.block_class, blocks, kind.recomputable, manners, tuple(sorted(numbered, key=lambda cost: cost.manner))
    )


def _place(manner: Manner) -> tuple[bool, int, bool]:
    """Returns where blocks of a manner come among equal ones: recomputed first, those that hold most last."""
    return (not manner.is_recomputed, ("anew", "kept", "whole").index(manner.gathered), manner.is_reduced)


def _recomputed(cost: BlockCost, kind: _Kind, shape: StepShape, recompute: bool) -> BlockCost:
    if not recompute:
        return cost
    times = shape.num_micro_batches
    again_ns = kind.forward.duration_ns * times
    return replace(
        cost,
        strategy=replace(cost.strategy, recompute="full"),
        backward_ns=cost.backward_ns + again_ns,
        backward_bare_ns=cost.backward_bare_ns + again_ns,
        recomputed_ns=kind.forward.overlappable_ns * times,
    )


def _costs(kind: _Kind, machine: Machine, strategies: Sequence[Strategy], shape: StepShape) -> Iterable[BlockCost]:
    widths = state_widths(shape.precision, shape.optimizer)
    parts = _Parts(kind, machine, shape)
    for strategy in strategies:
        forward = parts.forward(strategy.param_degree)
        gather = parts.gather(strategy.secondary_degree)
        reduce = parts.reduce(strategy.grad_degree)
        boundary = parts.boundary(strategy.grad_degree, strategy.optim_degree)
        update = parts.update(strategy.param_degree, strategy.optim_degree)
        sent_ns = gather.duration_ns + reduce.duration_ns + boundary.duration_ns
        yield BlockCost(
            strategy=strategy,
            manner=0,
            forward_ns=forward.duration_ns,
            forward_bare_ns=forward.duration_ns - forward.overlappable_ns,
            forward_longest_ns=forward.longest_ns,
            backward_ns=sent_ns,
            backward_bare_ns=sent_ns - gather.overlappable_ns - reduce.overlappable_ns,
            backward_longest_ns=reduce.longest_ns,
            recomputed_ns=0,
            alone_ns=update.duration_ns + parts.optimizer_ns(strategy.optim_degree),
            rest_bytes=state_bytes(kind.num_params, kind.num_trainable, strategy, widths).total_bytes,
            update_bytes=slice_bytes(kind.num_trainable, strategy, shape),
            spread_bytes=spread_bytes(kind.num_trainable, strategy, widths),
            output_bytes=output_bytes(kind.num_trainable, strategy, widths),
        )


class _Times(NamedTuple):
    """What some messages of a block take in a step."""

    duration_ns: int
    overlappable_ns: int
    longest_ns: int
    """Overlappable, of the longest one, in all micro-batches together."""


class _Parts:
    """The messages of a block by the degrees that decide them: few, while strategies are many."""

    def __init__(self, kind: _Kind, machine: Machine, shape: StepShape) -> None:
        widths = state_widths(shape.precision, shape.optimizer)

        def block(p: int, s: int, g: int, o: int) -> BlockTraffic:
            strategy = Strategy(p, s, g, o)
            return BlockTraffic(strategy, kind.num_params, kind.num_trainable, kind.differentiated, shape, widths)

        def times(messages: Iterable[Message]) -> _Times:
            sent = sum_messages(tuple(each for each in messages if is_sent(each)), machine.network, machine.speed)
            longest_ns = max((part_ns for bare in sent.bare.values() for part_ns, _ in bare), default=0)
            return _Times(
                sum(sent.duration.values()), sum(sent.overlappable.values()), longest_ns * shape.num_micro_batches
            )

        self.forward = cache(lambda p: times([block(p, p, p, p).forward()]))
        self.gather = cache(lambda s: times(each for each in block(s, s, 1, s).backward()))
        self.reduce = cache(lambda g: times(each for each in block(1, 1, g, g).backward()))
        self.boundary = cache(lambda g, o: times(block(1, 1, g, o).boundary()))
        self.update = cache(lambda p, o: times([block(p, p, p, o).update()]))
        self.optimizer_ns = cache(
            lambda o: UPDATE_NS(update_width(widths), kind.num_trainable, o, machine.speed.memory_bytes_per_s)
        )


def _undominated(costs: Iterable[BlockCost]) -> list[BlockCost]:
    """Returns the costs that no other of the same manner is at least as good as in everything; of equals the first."""
    by_manner: dict[Manner, list[BlockCost]] = {}
    for cost in costs:
        by_manner.setdefault(manner_of(cost.strategy), []).append(cost)
    return [cost for rivals in by_manner.values() for cost in _front(rivals)]


def _front(costs: list[BlockCost]) -> list[BlockCost]:
    figures = np.array([astuple(cost)[2:] for cost in costs], dtype=np.int64)
    order = np.lexsort((np.arange(len(costs)), figures.sum(axis=1, dtype=np.float64)))
    kept: list[int] = []
    for index in order:
        if not kept or not (figures[kept] <= figures[index]).all(axis=1).any():
            kept.append(int(index))
    return [costs[index] for index in sorted(kept)]
