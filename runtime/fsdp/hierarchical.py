"""All-gathers, reduce-scatters and all-reduces in stages, level by level: slow links carry what must cross, once.

A group between degrees a and b spans levels that end at a = d_0 < d_1 < ... < d_m = b. An all-gather begins with the
outermost, where a rank still has no more than its shard, and goes inwards; a reduce-scatter begins with the innermost
and has the least left for the outermost. The message between d_{k-1} and d_k is a / d_{k-1} of the whole either way. An
all-reduce is a reduce-scatter over the inner levels, an all-reduce over the outermost, and an all-gather back.

Shards lie in the order of ranks, where places on outer levels count first. So a stage on an inner level is one message
for each place on the levels outside of it, all of them sent at once: what comes is where it belongs, and nothing is
copied. Between stages a rank holds its part of the whole beside it, and no more.

Each is a generator that starts a stage and yields, and goes on when it is asked again: by then the message is over, or
is waited for. A group of one level has one stage, which is the whole collective.

Source: MiCS (arXiv 2205.00119) section 3.3, the gather in stages; ZeRO++ (arXiv 2306.10209) section 3.3, and PaRO
(arXiv 2310.06003) section 3.4, for reductions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch.distributed as dist
from torch import Tensor

from runtime.fsdp.groups import Groups


def all_gather(full: Tensor, own: Tensor, groups: Groups, stops: Sequence[int]) -> Iterator[None]:
    """Gathers shards in the order of ranks.

    Args:
        full: (b/a x elements,).
        own: (elements,): this rank's shard; it may lie in its place in `full`.
        groups: Of this rank.
        stops: a, ..., b.
    """
    held = own
    for inner, outer in _inwards(stops):
        group = groups.between(inner, outer, "gather")
        gathered = full if inner == stops[0] else full.new_empty(held.numel() * group.size())
        if outer == stops[-1]:
            work = dist.all_gather_single(gathered, held, group=group, async_op=True)
        else:
            places = stops[-1] // outer
            work = group.allgather_into_tensor_coalesced(list(gathered.view(places, -1)), list(held.view(places, -1)))
        yield
        _wait(work)
        held = gathered


def reduce_scatter(shard: Tensor, full: Tensor, groups: Groups, stops: Sequence[int]) -> Iterator[None]:
    """Sums `full` over ranks, and leaves this rank its shard of it.

    Args:
        shard: (elements,); it may lie in its place in `full`.
        full: (b/a x elements,), which is freed after the first stage.
        groups: Of this rank.
        stops: a, ..., b.
    """
    held = full
    del full
    for inner, outer in pairwise(stops):
        group = groups.between(inner, outer, "reduce")
        reduced = shard if outer == stops[-1] else held.new_empty(held.numel() // group.size())
        if outer == stops[-1]:
            work = dist.reduce_scatter_single(reduced, held, group=group, async_op=True)
        else:
            places = stops[-1] // outer
            work = group.reduce_scatter_tensor_coalesced(list(reduced.view(places, -1)), list(held.view(places, -1)))
        yield
        _wait(work)
        held = reduced


def all_reduce(values: Tensor, groups: Groups, stops: Sequence[int]) -> Iterator[None]:
    """Sums `values` over ranks, in place.

    Args:
        values: (elements,); padded to a multiple of the inner levels' ranks where they are no multiple.
        groups: Of this rank.
        stops: a, ..., b.
    """
    num_inner = stops[-2] // stops[0]
    padded = values
    if values.numel() % num_inner:
        padded = values.new_zeros(-(-values.numel() // num_inner) * num_inner)
        padded[: values.numel()].copy_(values)
    parts = [padded]
    for inner, outer in pairwise(stops[:-1]):
        group = groups.between(inner, outer, "reduce")
        parts.append(parts[-1].view(group.size(), -1)[group.rank()])
        work = dist.reduce_scatter_single(parts[-1], parts[-2], group=group, async_op=True)
        yield
        _wait(work)
    work = dist.all_reduce(parts[-1], group=groups.between(stops[-2], stops[-1], "reduce"), async_op=True)
    yield
    _wait(work)
    for (inner, outer), (part, whole) in zip(_inwards(stops[:-1]), pairwise(reversed(parts)), strict=True):
        work = dist.all_gather_single(whole, part, group=groups.between(inner, outer, "reduce"), async_op=True)
        yield
        _wait(work)
    if padded is not values:
        values.copy_(padded[: values.numel()])


def _inwards(stops: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(stops))[::-1]


def _wait(work: Any) -> None:
    """Waits for a message: on CUDA the stream does, not the host."""
    if work is not None:
        work.wait()
