"""The messages that bring a block's gradients to its slice: over g in every micro-batch, at the boundary to o and N.

Each is a generator that starts a message and yields, and goes on when it is asked again: by then the message is over,
or is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from runtime.fsdp.groups import Groups
from runtime.fsdp.hierarchical import all_reduce, reduce_scatter
from runtime.fsdp.unit import Unit


def reduction(unit: Unit, groups: Groups, is_last: bool) -> Iterator[None]:
    """Reduces what a micro-batch gave a block, and after the last one what all of them gave."""
    if unit.reduces_at_once:
        yield from _to_shard(unit, groups)
    if is_last:
        yield from to_slice(unit, groups)


def _to_shard(unit: Unit, groups: Groups) -> Iterator[None]:
    """Reduces the gradients of a micro-batch over g, and adds them up."""
    assert unit.accumulated is not None
    is_first = unit.num_reductions == 0
    unit.num_reductions += 1
    if unit.quantized_reduction is not None:
        shard = unit.accumulated if is_first else torch.empty_like(unit.accumulated)
        yield from unit.quantized_reduction.reduce(_filled(unit, unit.take_gradients()), shard)
    else:
        degree = unit.strategy.grad_degree
        full = _filled(unit, unit.take_gradients())
        # What is added up comes to this rank's own part of the message: no other memory is needed.
        shard = unit.accumulated if is_first else full.view(degree, -1)[groups.rank % degree]
        yield from reduce_scatter(shard, full, groups, _stops(unit, groups, 1, degree))
    if not is_first:
        unit.accumulated += shard


def to_slice(unit: Unit, groups: Groups) -> Iterator[None]:
    """Reduces what all micro-batches gave from g to o, and over the ranks that hold the same slice."""
    assert unit.accumulated is not None
    grad_degree, optim_degree = unit.strategy.grad_degree, unit.strategy.optim_degree
    own = unit.accumulated
    if optim_degree > grad_degree:
        stops = _stops(unit, groups, grad_degree, optim_degree)
        elements = unit.layout.slice_elements
        if unit.reduces_at_once:
            shard, own = own, own.view(-1, elements)[groups.rank % optim_degree // grad_degree]
            yield from reduce_scatter(own, shard, groups, stops)
        else:
            own = own[:elements]
            yield from reduce_scatter(own, _filled(unit, unit.take_gradients()), groups, stops)
    if groups.world_size > optim_degree:
        yield from all_reduce(own, groups, _stops(unit, groups, optim_degree, groups.world_size))
    unit.slice = own


def _stops(unit: Unit, groups: Groups, inner: int, outer: int) -> tuple[int, ...]:
    return groups.stops(inner, outer, hierarchical=unit.strategy.hierarchical)


def _filled(unit: Unit, gradients: list[Tensor | None]) -> Tensor:
    assert unit.accumulated is not None
    full = unit.accumulated.new_empty(unit.layout.full_elements)
    unit.layout.fill(full, gradients)
    return full
