"""Joins the segments of two micro-batch sizes into amounts and timelines that are affine in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from costmodels.workload import Amount, Event, Phase, Recomputed, Segment, Timeline, Work
from planner.trace.measure.segments import MeasuredSegment


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
    others: list[Timeline] = []
    for one, other in zip(small, large, strict=True):
        joined = _timeline(one, other, micro_batch_size)
        (found[one.block].setdefault(one.phase, []) if one.block in recomputed else others).append(joined)
    counts = {index: Counter(s.phase for s in segments if s.block == index) for index in found}
    able = {index: parts for index, parts in found.items() if _is_recomputed(parts, counts[index])}
    unchanged: list[tuple[int, str]] = [(s.block, s.phase) for s in segments if s.block not in recomputed]
    _check_same(unchanged, [(s.block, s.phase) for s in small if s.block not in recomputed])
    return (
        tuple(_with(segment, able, others, recomputed) for segment in segments),
        tuple(index for index in found if index not in able),
    )


def _with(
    segment: Segment, able: dict[int, dict[str, list[Timeline]]], others: list[Timeline], recomputed: frozenset[int]
) -> Segment:
    """Returns the segment with its next counterpart in the step with recomputation.

    Those of other blocks may differ too: what all layers read (masks, positions) or made (copies of weights under
    autocast) dies at another place when the layers run again.
    """
    if segment.block in able:
        return replace(segment, recomputed=_take(able[segment.block], segment.phase))
    if segment.block in recomputed:
        return segment
    timeline = others.pop(0)
    return replace(segment, recomputed=Recomputed(timeline)) if able and timeline != segment.timeline else segment


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
        frozen_input_bytes=affine(one.frozen_input_bytes, other.frozen_input_bytes, micro_batch_size),
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


def _direction(event: Event) -> int:
    """1 if the event never frees for b >= 1, -1 if it never allocates, 0 if that depends on b."""
    if event.per_sample >= 0 and event.constant + event.per_sample >= 0:
        return 1
    return -1 if event.per_sample <= 0 and event.constant + event.per_sample <= 0 else 0
