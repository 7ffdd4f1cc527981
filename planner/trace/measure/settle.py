"""Settles what recomputation frees at once for all layers, where a few of them were traced and stand for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from costmodels.workload import Amount, Block, Event, Recomputed, Segment


def settle(blocks: tuple[Block, ...], segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Returns the segments such that a step leaves as much behind with recomputation as without.

    Under autocast, layers that run again do not keep the copies of their weights: the end of autocast frees those of
    all layers at once, in a segment that is of no layer. Traced with few layers it frees too few. The rest is freed in
    the segment outside the layers that recomputation changes most.
    """
    without = _sum(segment.net_bytes for segment in segments)
    missing = _difference(without, _sum(_net_with_recomputation(segment) for segment in segments))
    outside = [
        (abs(change.constant) + abs(change.per_sample), at)
        for at, segment in enumerate(segments)
        if segment.recomputed is not None and not blocks[segment.block].recomputable
        for change in (_difference(segment.recomputed.timeline.net_bytes, segment.net_bytes),)
    ]
    if missing == Amount() or not outside:
        return segments
    place = max(outside)[1]
    return tuple(_with(segment, missing) if at == place else segment for at, segment in enumerate(segments))


def _with(segment: Segment, missing: Amount) -> Segment:
    assert segment.recomputed is not None  # it was chosen for that
    timeline = segment.recomputed.timeline
    events = (*timeline.events, Event(missing.constant, missing.per_sample))
    return replace(segment, recomputed=Recomputed(replace(timeline, events=events), segment.recomputed.again))


def _net_with_recomputation(segment: Segment) -> Amount:
    if segment.recomputed is None:
        return segment.net_bytes
    return segment.recomputed.timeline.net_bytes + segment.recomputed.again.net_bytes


def _sum(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, Amount())


def _difference(one: Amount, other: Amount) -> Amount:
    return Amount(one.constant - other.constant, one.per_sample - other.per_sample)
