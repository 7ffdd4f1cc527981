"""Aligns two measures of a step that runs more operators for one sample more, such as a loop over the samples.

What such a part allocates and frees one by one cannot be told for another number of samples; its peak and what it
leaves can. All other parts stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.trace.measure.segments import Change, MeasuredSegment

COARSE = (
    "parts of the step run more operators for each sample more, as a loop over the samples does: of their memory the "
    "peak and what they leave are known, and their operators are counted for two samples"
)
"""What the alignment loses, for people."""


def grows_evenly(steps: Sequence[Sequence[MeasuredSegment]]) -> bool:
    """Whether the segments of steps of one sample more each are the same, and their operators grow by as many each."""
    if len({tuple((segment.block, segment.phase) for segment in step) for step in steps}) != 1:
        return False
    counts = [[segment.num_operators for segment in step] for step in steps]
    return all(first - second == second - third for first, second, third in zip(*counts, strict=True))


def aligned(
    small: Sequence[MeasuredSegment], large: Sequence[MeasuredSegment]
) -> tuple[list[MeasuredSegment], list[MeasuredSegment]]:
    """Returns the segments of both, those that run other operators with their peaks and ends only."""
    pairs = [
        (one, other) if _runs_same(one, other) else (_coarse(one, one), _coarse(other, one))
        for one, other in zip(small, large, strict=True)
    ]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _runs_same(one: MeasuredSegment, other: MeasuredSegment) -> bool:
    places = [[change[:3] for change in each.changes] for each in (one, other)]
    return (one.num_operators, one.completed, places[0]) == (other.num_operators, other.completed, places[1])


def _coarse(segment: MeasuredSegment, counted: MeasuredSegment) -> MeasuredSegment:
    live = peak = 0
    for change in segment.changes:
        live += 0 if change.is_gradient else change.delta_bytes
        peak = max(peak, live)
    gradients = sum(change.delta_bytes for change in segment.changes if change.is_gradient)
    changes = (
        Change(0, is_death=False, is_gradient=False, delta_bytes=peak),
        Change(0, is_death=True, is_gradient=False, delta_bytes=live - peak),
        Change(1, is_death=False, is_gradient=True, delta_bytes=gradients),
    )
    completed = (1,) * len(segment.completed)
    return replace(segment, num_operators=counted.num_operators, changes=changes, completed=completed)
