"""Gives the segments of a full trace the amounts that two traces of fewer layers found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from costmodels.workload import Segment
from planner.trace.amounts import MismatchError
from planner.trace.layout import BlockLayout
from planner.trace.segments import MeasuredSegment
from planner.trace.truncate import Shortening

_MEASURES = ("work", "io_bytes", "product_io_bytes", "num_operators", "changes")


def transfer(
    full: Sequence[MeasuredSegment],
    measured: Sequence[MeasuredSegment],
    joined: Sequence[Segment],
    layout: BlockLayout,
    shortening: Shortening,
) -> tuple[Segment, ...]:
    """Returns the segments of `full`, with the amounts of their counterparts in the shorter model.

    Args:
        full: Of all layers, at one micro-batch size.
        measured: Of the shorter model at the same size.
        joined: The same as `measured`, joined with those of another size.
        layout: Of the full model.
        shortening: What the shorter model has.

    Raises:
        MismatchError: A segment has no counterpart in the shorter model, or is not equal to it.
    """
    roles = _roles(layout, shortening)
    known: dict[Hashable, tuple[MeasuredSegment, Segment]] = {}
    for key, one, segment in zip(_keys(measured, layout, roles), measured, joined, strict=True):
        known.setdefault(key, (one, segment))
    found = []
    for key, wanted in zip(_keys(full, layout, roles), full, strict=True):
        if key not in known:
            raise MismatchError
        one, counterpart = known[key]
        if any(getattr(one, name) != getattr(wanted, name) for name in _MEASURES):
            raise MismatchError
        found.append(replace(counterpart, block=wanted.block, calls=wanted.calls, gradients=wanted.gradients))
    return tuple(found)


def _roles(layout: BlockLayout, shortening: Shortening) -> dict[int, Hashable]:
    """Returns what each block stands for: itself, or its class and place in its list."""
    roles: dict[int, Hashable] = dict(enumerate(layout.blocks))
    for repetition in shortening.repetitions:
        for member in repetition.members:
            index = layout.block_of[member]
            roles[index] = repetition.owner, layout.blocks[index].block_class, shortening.positions[member]
    return roles


def _keys(segments: Sequence[MeasuredSegment], layout: BlockLayout, roles: dict[int, Hashable]) -> list[Hashable]:
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
