"""Walks through a workload's step as the cost models read it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from costmodels.workload import Segment, Timeline, Workload


@dataclass(frozen=True, slots=True)
class Walked:
    """The step's figures, gradients of parameters included as autograd leaves them."""

    saved_bytes: int
    peak_bytes: int
    forward_flop: int
    backward_flop: int
    recomputation_flop: int


def walk(workload: Workload, micro_batch_size: int, *, recompute: bool) -> Walked:
    """Returns the figures for a micro-batch, with every block recomputed that can be, or none."""
    live = peak = saved = 0
    flop = {"forward": 0, "backward": 0, "recomputation": 0}
    run_again = _run_again(workload) if recompute else frozenset()
    for segment in workload.segments:
        flop[segment.phase] += segment.flop.at(micro_batch_size)
        if segment.phase == "forward" and segment.block in run_again:
            flop["recomputation"] += segment.flop.at(micro_batch_size)
        for timeline in _timelines(segment, recompute=recompute):
            for event in timeline.events:
                live += event.constant + event.per_sample * micro_batch_size
                peak = max(peak, live)
        if segment.phase == "forward":
            saved = live
    return Walked(saved, peak, flop["forward"], flop["backward"], flop["recomputation"])


def _run_again(workload: Workload) -> frozenset[int]:
    """Returns the blocks whose forward runs again: one that gets no gradient has nothing to run it for."""
    return frozenset(
        segment.block
        for segment in workload.segments
        if segment.phase == "backward" and segment.recomputed is not None and segment.recomputed.again.events
    )


def _timelines(segment: Segment, *, recompute: bool) -> Iterator[Timeline]:
    if not recompute or segment.recomputed is None:
        yield segment.timeline
        return
    if segment.phase == "backward":
        yield segment.recomputed.again
    yield segment.recomputed.timeline
