"""Joins the segments of two micro-batch sizes into amounts that are affine in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from costmodels.workload import Amount, Segment
from planner.trace.layout import BlockLayout
from planner.trace.segments import MeasuredSegment
from planner.trace.truncate import positions

_AMOUNTS = ("flop", "io_bytes", "product_io_bytes", "peak_bytes", "net_bytes", "kept_bytes")


class MismatchError(Exception):
    """Two traces that should run the same segments do not."""


def affine(small: int, large: int, micro_batch_size: int) -> Amount:
    """Returns the amount that is `small` at `micro_batch_size` samples and `large` at one more."""
    return Amount(constant=small - (large - small) * micro_batch_size, per_sample=large - small)


def join(small: list[MeasuredSegment], large: list[MeasuredSegment], micro_batch_size: int) -> tuple[Segment, ...]:
    """Returns the segments, from their measures at `micro_batch_size` samples and at one more.

    Raises:
        MismatchError: The two did not run the same segments.
    """
    if [(s.block, s.phase) for s in small] != [(s.block, s.phase) for s in large]:
        raise MismatchError
    return tuple(_segment(one, one, other, micro_batch_size) for one, other in zip(small, large, strict=True))


def join_by_samples(
    full: list[MeasuredSegment],
    small: list[MeasuredSegment],
    large: list[MeasuredSegment],
    layout: BlockLayout,
    micro_batch_size: int,
) -> tuple[Segment, ...]:
    """Returns the segments of `full` with slopes from two traces of the same model with fewer repeated layers.

    Raises:
        MismatchError: A segment has no counterpart in the shorter traces, or is not equal to it.
    """
    if [(s.block, s.phase) for s in small] != [(s.block, s.phase) for s in large]:
        raise MismatchError
    roles = _roles(layout)
    pairs: dict[Hashable, tuple[MeasuredSegment, MeasuredSegment]] = {}
    for key, one, other in zip(_keys(small, layout, roles), small, large, strict=True):
        pairs.setdefault(key, (one, other))
    joined = []
    for key, segment in zip(_keys(full, layout, roles), full, strict=True):
        if key not in pairs:
            raise MismatchError
        one, other = pairs[key]
        if any(getattr(one, name) != getattr(segment, name) for name in (*_AMOUNTS, "num_operators")):
            raise MismatchError
        joined.append(_segment(segment, one, other, micro_batch_size))
    return tuple(joined)


def _segment(full: MeasuredSegment, one: MeasuredSegment, other: MeasuredSegment, micro_batch_size: int) -> Segment:
    amounts = {name: affine(getattr(one, name), getattr(other, name), micro_batch_size) for name in _AMOUNTS}
    return Segment(
        block=full.block,
        phase=full.phase,
        calls=full.calls,
        num_operators=full.num_operators,
        gradients=full.gradients,
        **amounts,
    )


def _roles(layout: BlockLayout) -> dict[int, Hashable]:
    """Returns what each block stands for: itself, or its class and place in its list."""
    roles: dict[int, Hashable] = dict(enumerate(layout.blocks))
    for repetition in layout.repetitions:
        if repetition.is_list:
            for member, position in positions(layout, repetition).items():
                index = layout.block_of[member]
                roles[index] = (repetition.owner, layout.blocks[index].block_class, position)
    return roles


def _keys(segments: list[MeasuredSegment], layout: BlockLayout, roles: dict[int, Hashable]) -> list[Hashable]:
    """Returns what tells each segment from all others that are not its equals.

    A block that runs in several pieces counts them; a piece of the root is known by the blocks before and after it.
    """
    keys: list[Hashable] = []
    pieces: Counter[Hashable] = Counter()
    for position, segment in enumerate(segments):
        if layout.blocks[segment.block].name:
            pieces[segment.block, segment.phase] += 1
            keys.append((roles[segment.block], segment.phase, pieces[segment.block, segment.phase]))
            continue
        around = [segments[at] for at in (position - 1, position + 1) if 0 <= at < len(segments)]
        neighbours = tuple((roles[other.block], other.phase) for other in around)
        names = tuple((other.block, other.phase) for other in around)
        pieces[names, segment.phase] += 1
        keys.append((neighbours, segment.phase, pieces[names, segment.phase]))
    return keys
