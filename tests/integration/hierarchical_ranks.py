"""What the ranks of the tests send level by level, beside the same at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.fsdp.groups import Groups
from runtime.fsdp.hierarchical import all_gather, all_reduce, reduce_scatter
from runtime.record_traffic import RecordedTraffic, RecordTraffic

ELEMENTS = 5
"""Of a shard."""


def sent(
    operation: str, inner: int, outer: int, level_sizes: tuple[int, ...], dtype: torch.dtype, in_place: bool
) -> tuple[Tensor, Tensor, tuple[RecordedTraffic, ...]]:
    """Returns what an operation between two degrees gives level by level and at once, and the traffic of the first."""
    groups = Groups(level_sizes)
    stops = groups.stops(inner, outer, hierarchical=True)
    num_ranks = outer // inner
    run: Callable[[Tensor, Groups, tuple[int, ...]], Tensor]
    plain: Callable[[Tensor, dist.ProcessGroup], Tensor]
    place = groups.rank % outer // inner
    generator = torch.Generator().manual_seed(groups.rank)
    # Whole numbers: their sums are exact in any order.
    values = torch.randint(-8, 8, (num_ranks * ELEMENTS,), generator=generator).to(dtype)
    if operation == "all_gather":
        run, plain = partial(_gathered, place, in_place), partial(_gathered_at_once, place)
    elif operation == "reduce_scatter":
        run, plain = partial(_reduced, place, in_place), partial(_reduced_at_once, place)
    else:
        run, plain = _all_reduced, _all_reduced_at_once
    with RecordTraffic() as traffic:
        result = run(values.clone(), groups, stops)
    whole = plain(values.clone(), groups.between(inner, outer, "reduce"))
    return result, whole, traffic.totals()


def _gathered(place: int, in_place: bool, values: Tensor, groups: Groups, stops: tuple[int, ...]) -> Tensor:
    own = values.view(-1, ELEMENTS)[place]
    full = values if in_place else torch.empty_like(values)
    _finish(all_gather(full, own, groups, stops))
    return full


def _gathered_at_once(place: int, values: Tensor, group: dist.ProcessGroup) -> Tensor:
    full = torch.empty_like(values)
    dist.all_gather_single(full, values.view(-1, ELEMENTS)[place].clone(), group=group)
    return full


def _reduced(place: int, in_place: bool, values: Tensor, groups: Groups, stops: tuple[int, ...]) -> Tensor:
    shard = values.view(-1, ELEMENTS)[place] if in_place else values.new_empty(ELEMENTS)
    _finish(reduce_scatter(shard, values, groups, stops))
    return shard


def _reduced_at_once(place: int, values: Tensor, group: dist.ProcessGroup) -> Tensor:
    dist.all_reduce(values, group=group)
    return values.view(-1, ELEMENTS)[place]


def _all_reduced(values: Tensor, groups: Groups, stops: tuple[int, ...]) -> Tensor:
    _finish(all_reduce(values, groups, stops))
    return values


def _all_reduced_at_once(values: Tensor, group: dist.ProcessGroup) -> Tensor:
    dist.all_reduce(values, group=group)
    return values


def _finish(stages: Iterator[None]) -> None:
    for _ in stages:
        pass
