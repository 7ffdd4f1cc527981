"""What the fsdp engine holds beside model states and activations, and when, block by block.

A block's parameters are gathered into a flat buffer, when the block before it in that phase begins, and as it begins
itself copied out of it: then both are there. They are sharded again as its forward ends and as its backward ends (kept
ones: then only; with 1 < s < p a shard of 1/s stays between the two). As its backward ends, its whole gradients are
copied into the flat input of their reduction, which lives until the next block's has ended. What the update changed is
spread through a flat buffer: from two blocks before its own on, until it is gathered, or where p = 1 until it runs.

gloo copies the output of an all-gather until that is over, and the input of a reduce-scatter.

Every hold depends on the strategy of one block alone; so what is held at any moment is a sum over blocks, and a solver
can choose for each block on its own. How large it is depends on all of the block's degrees only by padding; but for
that it depends on the block's `Manner` alone, and kinds that are small beside it on a degree.

Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `unshard`, `wait_for_unshard`, `reshard`;
`runtime/fsdp/reducer.py`, `reduction.py`, `spread.py`; torch/csrc/distributed/c10d/ProcessGroupGloo.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from costmodels.fsdp.sizes import block_sizes
from costmodels.fsdp.uses import PREFETCH, Use, owners, uses
from costmodels.strategy import Strategy
from costmodels.workload import Workload

Gathered = Literal["anew", "kept", "whole"]
"""Parameters are gathered anew for backward, or kept from forward, or whole on every rank (p = 1)."""
Reducing = Literal["never", "once", "each"]
"""Gradients are reduced in each micro-batch (g > 1), once in a step (g = 1), or never to less than all (o = 1)."""


class Manner(NamedTuple):
    """All of a strategy's degrees that decides what is held when; beyond that they decide how large shards are."""

    gathered: Gathered
    reducing: Reducing


def manner_of(strategy: Strategy) -> Manner:
    """Returns the manner of a strategy."""
    gathered: Gathered = "anew"
    if strategy.param_degree == 1:
        gathered = "whole"
    elif strategy.secondary_degree == 1:
        gathered = "kept"
    return Manner(gathered, reducing_of(strategy.grad_degree, strategy.optim_degree))


def reducing_of(grad_degree: int, optim_degree: int) -> Reducing:
    """Returns when gradients are reduced to less than all."""
    if grad_degree > 1:
        return "each"
    return "once" if optim_degree > 1 else "never"


Kind = Literal["anew", "kept", "partial", "input", "copy", "filling", "spread_shard", "spread_whole"]
"""Of what is held: a block's gathered parameters, gathered anew or kept; a shard of 1/s of them; the flat input of the
reduction of its gradients, and gloo's copy of the one from g to o; the padded gradient of one parameter while it is
copied; what is spread, to shards (p > 1) or to all of them."""


class Stay(NamedTuple):
    """So many times what a block holds of one kind; less than none where it is held no more."""

    block: int
    kind: Kind
    times: int = 1


class Hold(NamedTuple):
    """What a block holds from the beginning of one segment to the end of another."""

    stay: Stay
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a block's backward, in the segment that it is in."""

    block: int
    before: tuple[int, ...]
    """Blocks that have ended in the segment before it: their gradients wait no more."""
    filled: tuple[Stay, ...]
    """Beyond what is held throughout the segment, while gradients are copied."""
    sent: tuple[Stay, ...]
    """The same once they are, when the block's own gradients wait no more."""


@dataclass(frozen=True, slots=True)
class Holds:
    """All that blocks can hold."""

    throughout: tuple[Hold, ...]
    beginnings: tuple[tuple[tuple[Stay, ...], ...], ...]
    """For each segment moments as it begins, each beyond what is held throughout it."""
    endings: tuple[tuple[Ending, ...], ...]
    """For each segment the blocks whose backward ends with it, in order."""
    at_rest: tuple[int, ...]
    """Blocks whose spread is under way between two steps: the first ones of forward."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The gradient of one parameter: complete in a segment, and waiting for its block's reduction where g > 1."""

    block: int
    segment: int
    number: int
    """Gradients of the segment that came before it."""
    elements: int
    until: int
    """The segment at whose end the block's gradients are reduced."""


@lru_cache(maxsize=16)
def holds(workload: Workload, is_cpu: bool) -> Holds:
    """Returns all that blocks can hold, on a CPU with gloo's copies."""
    forward, backward = uses(workload, "forward"), uses(workload, "backward")
    ended = _ended(workload)
    throughout = [*_windows(forward), *_windows(backward), *_kept(forward, backward)]
    throughout += [*_partial(forward, backward), *_inputs(ended, is_cpu), *_spread(forward, is_cpu)]
    if is_cpu:
        throughout += [*_arriving(forward, "anew"), *_arriving(backward, "anew"), *_arriving(forward, "kept")]
    beginnings: list[list[tuple[Stay, ...]]] = [[] for _ in workload.segments]
    for phase in (forward, backward):
        for use in phase:
            beginnings[use.first].append(_beginning(use, throughout, is_forward=phase is forward))
    endings: list[list[Ending]] = [[] for _ in workload.segments]
    for place, use in enumerate(ended):
        before = [each.block for each in endings[use.last]]
        previous = ended[place - 1].block if place else None
        endings[use.last].append(_ending(use, before, previous, throughout, is_cpu))
    order = [use.block for use in forward]
    order += [block for block in range(len(workload.blocks)) if block not in order]
    return Holds(
        tuple(throughout),
        tuple(tuple(each) for each in beginnings),
        tuple(tuple(each) for each in endings),
        tuple(order[: PREFETCH + 1]),
    )


@lru_cache(maxsize=16)
def arrivals(workload: Workload) -> tuple[Arrival, ...]:
    """Returns the gradients of a step in order of time."""
    owned_by = owners(workload)
    reduced_in = {use.block: use.last for use in uses(workload, "backward")}
    return tuple(
        Arrival(
            block=owned_by[index],
            segment=position,
            number=number,
            elements=workload.parameters[index].num_elements,
            until=max(position, reduced_in.get(owned_by[index], position)),
        )
        for position, segment in enumerate(workload.segments)
        for number, index in enumerate(segment.gradients)
    )


def _ended(workload: Workload) -> list[Use]:
    """Returns the trained blocks in the order in which they are reduced: those that backward does not reach last."""
    sizes = block_sizes(workload)
    trained = [use for use in uses(workload, "backward") if sizes[use.block].num_trainable]
    reached, end = {use.block for use in trained}, len(workload.segments) - 1
    missed = [block for block in reversed(range(len(sizes))) if sizes[block].num_trainable and block not in reached]
    return sorted(trained, key=lambda use: (use.last, use.first)) + [
        Use(block, end, end) for block in missed if end >= 0
    ]


def _windows(used: tuple[Use, ...]) -> Iterator[Hold]:
    for place, use in enumerate(used):
        first = used[max(0, place - PREFETCH)].first
        yield Hold(Stay(use.block, "anew"), first, use.last)


def _kept(forward: tuple[Use, ...], backward: tuple[Use, ...]) -> Iterator[Hold]:
    last = {use.block: use.last for use in backward}
    for place, use in enumerate(forward):
        first = forward[max(0, place - PREFETCH)].first
        yield Hold(Stay(use.block, "kept"), first, last.get(use.block, use.last))


def _arriving(used: tuple[Use, ...], kind: Kind) -> Iterator[Hold]:
    """Copies by gloo of what is gathered ahead, at the longest until the block begins."""
    for place, use in enumerate(used):
        first = used[max(0, place - PREFETCH)].first
        if first < use.first:
            yield Hold(Stay(use.block, kind), first, use.first - 1)


def _partial(forward: tuple[Use, ...], backward: tuple[Use, ...]) -> Iterator[Hold]:
    first = {use.block: use.first for use in backward}
    for use in forward:
        if use.last + 1 < first.get(use.block, 0):
            yield Hold(Stay(use.block, "partial"), use.last + 1, first[use.block] - 1)


def _inputs(ended: list[Use], is_cpu: bool) -> Iterator[Hold]:
    """The input of a reduction, until the next block's backward has ended; then, of the one after it, gloo's copy."""
    for place, use in enumerate(ended):
        following = [each.last for each in ended[place + 1 : place + 3]]
        if following and use.last < following[0]:
            yield Hold(Stay(use.block, "input", 1 + is_cpu), use.last + 1, following[0])
        if is_cpu and len(following) > 1 and following[0] < following[1]:
            yield Hold(Stay(use.block, "copy"), following[0] + 1, following[1])


def _spread(forward: tuple[Use, ...], is_cpu: bool) -> Iterator[Hold]:
    """What is spread during forward; that of the first blocks is under way before it."""
    for place, use in enumerate(forward):
        start = place - PREFETCH - 1
        first = forward[start].first if start >= 0 else 0
        gathered = forward[max(0, place - PREFETCH)].first
        if start >= 0 and first < gathered:
            yield Hold(Stay(use.block, "spread_shard", 1 + is_cpu), first, gathered - 1)
        if first < use.first:
            yield Hold(Stay(use.block, "spread_whole", 1 + is_cpu), first, use.first - 1)


def _beginning(use: Use, throughout: list[Hold], *, is_forward: bool) -> tuple[Stay, ...]:
    """Returns the moment as a block begins: it is copied out of its flat buffer, and then others' gathers start."""
    kinds: tuple[Kind, ...] = ("anew", "kept") if is_forward else ("anew",)
    starting = [hold.stay for hold in throughout if hold.first == use.first and hold.stay.kind in kinds]
    others = [Stay(stay.block, stay.kind, -stay.times) for stay in starting if stay.block != use.block]
    # What stays of a forward is given up once it is copied.
    left = () if is_forward else (Stay(use.block, "partial"),)
    return (*(Stay(use.block, kind) for kind in kinds), *others, *left)


def _ending(use: Use, before: list[int], previous: int | None, throughout: list[Hold], is_cpu: bool) -> Ending:
    over = (*before, use.block)
    gone = [
        Stay(hold.stay.block, hold.stay.kind, -hold.stay.times)
        for hold in throughout
        if hold.first <= use.last == hold.last
        and (hold.stay.kind in ("input", "copy") or (hold.stay.kind in ("anew", "kept") and hold.stay.block in over))
    ]
    if is_cpu and previous is not None:
        gone.append(Stay(previous, "copy"))
    return Ending(
        use.block,
        tuple(before),
        (*gone, Stay(use.block, "input"), Stay(use.block, "filling")),
        (*gone, Stay(use.block, "input", 1 + is_cpu)),
    )
