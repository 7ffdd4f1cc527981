"""Joins the segments of two micro-batch sizes into amounts and timelines that are affine in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from costmodels.workload import Amount, Event, Phase, Recomputed, Segment, Timeline, Work
from planner.trace.segments import MeasuredSegment


class MismatchError(Exception):
    """Two traces that should run the same segments do not."""


def affine(small: int, large: int, micro_batch_size: int) -> Amount:
    """Returns the amount that is `small` at `micro_batch_size` samples and `large` at one more."""
    return Amount(constant=small - (large - small) * micro_batch_size, per_sample=large - small)


def join(
    small: Sequence[MeasuredSegment], large: Sequence[MeasuredSegment], micro_batch_size: int
) -> tuple[Segment, ...]:
    """Returns the segments, from their measures at `micro_batch_size` samples and at one more.

    Raises:
        MismatchError: The two did not run the same segments.
    """
    _check_same([(s.block, s.phase) for s in small], [(s.block, s.phase) for s in large])
    return tuple(_segment(one, other, micro_batch_size) for one, other in zip(small, large, strict=True))


def join_recomputed(
    segments: tuple[Segment, ...],
    small: Sequence[MeasuredSegment],
    large: Sequence[MeasuredSegment],
    recomputed: frozenset[int],
    micro_batch_size: int,
) -> tuple[tuple[Segment, ...], tuple[int, ...]]:
    """Returns `segments` with what differs where the blocks in `recomputed` are recomputed, and the blocks that cannot.

    These are the blocks that do not run the same segments when they are recomputed, each once more before backward.

    Args:
        segments: Of the step without recomputation.
        small: Of the step in which these blocks are recomputed, at `micro_batch_size` samples.
        large: The same at one sample more.
        recomputed: Indices of blocks.
        micro_batch_size: Samples of `small`.

    Raises:
        MismatchError: `small` and `large` did not run the same segments.
    """
    _check_same([(s.block, s.phase) for s in small], [(s.block, s.phase) for s in large])
    found: dict[int, dict[str, list[Timeline]]] = {index: {} for index in sorted(recomputed)}
    held = _held_longer(segments, small, large, recomputed, micro_batch_size)
    for position, (one, other) in enumerate(zip(small, large, strict=True)):
        if one.block in recomputed:
            joined = _timeline(one, other, micro_batch_size)
            if position in held:
                joined = _with(joined, held[position], at_end=one.phase == "forward")
            found[one.block].setdefault(one.phase, []).append(joined)
    counts = {index: Counter(s.phase for s in segments if s.block == index) for index in found}
    able = {index: parts for index, parts in found.items() if _is_recomputed(parts, counts[index])}
    return (
        tuple(replace(s, recomputed=_take(able[s.block], s.phase)) if s.block in able else s for s in segments),
        tuple(index for index in found if index not in able),
    )


def _held_longer(
    segments: tuple[Segment, ...],
    small: Sequence[MeasuredSegment],
    large: Sequence[MeasuredSegment],
    recomputed: frozenset[int],
    micro_batch_size: int,
) -> dict[int, Amount]:
    """Returns by the position of a recomputed stretch what the others free less or more than without recomputation.

    What all layers read (masks, positions) dies after the last of them, unless they hold it to run again. Such bytes
    stay with the last stretch of forward before the place where they died, and the first of backward after it.
    """
    others = [segment for segment in segments if segment.block not in recomputed]
    places = [at for at, one in enumerate(small) if one.block not in recomputed]
    if [(s.block, s.phase) for s in others] != [(small[at].block, small[at].phase) for at in places]:
        raise MismatchError
    held: dict[int, Amount] = {}
    for segment, at in zip(others, places, strict=True):
        now = affine(_net_bytes(small[at]), _net_bytes(large[at]), micro_batch_size)
        more = Amount(now.constant - segment.net_bytes.constant, now.per_sample - segment.net_bytes.per_sample)
        step = -1 if segment.phase == "forward" else 1
        stop = -1 if segment.phase == "forward" else len(small)
        near = next((place for place in range(at, stop, step) if small[place].block in recomputed), None)
        if more != Amount() and near is not None:
            held[near] = held.get(near, Amount()) + more
    return held


def _net_bytes(segment: MeasuredSegment) -> int:
    return sum(change.delta_bytes for change in segment.changes if not change.is_gradient)


def _is_recomputed(parts: dict[str, list[Timeline]], counts: Counter[Phase]) -> bool:
    """Whether each stretch has its counterpart, and each of backward a forward to run again or none at all."""
    again = len(parts.get("recomputation", ()))
    same = all(len(parts.get(phase, ())) == counts[phase] for phase in ("forward", "backward"))
    return same and again in (0, counts["backward"])


def _take(parts: dict[str, list[Timeline]], phase: Phase) -> Recomputed:
    """Takes the next stretch of a phase, with the forward that runs again before it."""
    again = parts.get("recomputation") if phase == "backward" else None
    return Recomputed(parts[phase].pop(0), again.pop(0) if again else Timeline())


def _check_same(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> None:
    if one != other:
        raise MismatchError


def _segment(one: MeasuredSegment, other: MeasuredSegment, micro_batch_size: int) -> Segment:
    if one.num_operators != other.num_operators or one.phase == "recomputation":
        raise MismatchError
    work = _joined_work(one, other, micro_batch_size)
    return Segment(
        block=one.block,
        phase=one.phase,
        calls=one.calls,
        flop=sum((each.flop for each in work), Amount()),
        io_bytes=affine(one.io_bytes, other.io_bytes, micro_batch_size),
        num_operators=one.num_operators,
        timeline=_timeline(one, other, micro_batch_size),
        product_io_bytes=affine(one.product_io_bytes, other.product_io_bytes, micro_batch_size),
        gradients=one.gradients,
        work=work,
    )


def _joined_work(one: MeasuredSegment, other: MeasuredSegment, micro_batch_size: int) -> tuple[Work, ...]:
    if [work[:2] for work in one.work] != [work[:2] for work in other.work]:
        raise MismatchError
    return tuple(
        Work(kind, dtype, affine(flop, more, micro_batch_size))
        for (kind, dtype, flop), (_, _, more) in zip(one.work, other.work, strict=True)
    )


def _timeline(small: MeasuredSegment, large: MeasuredSegment, micro_batch_size: int) -> Timeline:
    """Returns the changes as events; neighbours that both come to life, or both die, at any size are one.

    A gradient is complete after the operator's results have come to life and what it needed has died.
    """
    if [c[:3] for c in small.changes] != [c[:3] for c in large.changes] or small.completed != large.completed:
        raise MismatchError
    events: list[Event] = []
    completed: list[int] = []
    for one, other in zip(small.changes, large.changes, strict=True):
        while len(completed) < len(small.completed) and small.completed[len(completed)] < one.operator:
            completed.append(len(events))
        amount = affine(one.delta_bytes, other.delta_bytes, micro_batch_size)
        event = Event(amount.constant, amount.per_sample, one.is_gradient)
        if not event.constant and not event.per_sample:
            continue
        last = events[-1] if events and completed[-1:] != [len(events)] else None
        if last is not None and last.is_gradient == event.is_gradient and _direction(last) * _direction(event) > 0:
            events[-1] = Event(last.constant + event.constant, last.per_sample + event.per_sample, event.is_gradient)
        else:
            events.append(event)
    completed += [len(events)] * (len(small.completed) - len(completed))
    return Timeline(tuple(events), tuple(completed))


def _with(timeline: Timeline, amount: Amount, *, at_end: bool) -> Timeline:
    """Returns the timeline with one event more, after all others or before them."""
    event = Event(amount.constant, amount.per_sample)
    if at_end:
        return replace(timeline, events=(*timeline.events, event))
    return Timeline((event, *timeline.events), tuple(position + 1 for position in timeline.completed))


def _direction(event: Event) -> int:
    """1 if the event never frees for b >= 1, -1 if it never allocates, 0 if that depends on b."""
    if event.per_sample >= 0 and event.constant + event.per_sample >= 0:
        return 1
    return -1 if event.per_sample <= 0 and event.constant + event.per_sample <= 0 else 0
