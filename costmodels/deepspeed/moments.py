"""Where in a micro-batch DeepSpeed's fetches are and gradients come: as parts of the work of the traced segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from costmodels.deepspeed.hooks import Hook
from costmodels.engine import Assignment
from costmodels.schedule import WHOLE, Compute, Work, recomputed_segments
from costmodels.workload import Workload

Moment = tuple[int, int, int]
"""(segment, 0 in the forward that runs again within it and 1 in its own work, parts of `WHOLE` of that done before)."""


@lru_cache(maxsize=16)
def hook_moments(workload: Workload, order: tuple[Hook, ...]) -> tuple[tuple[Hook, Moment], ...]:
    """Returns when each fetch among the hooks of a micro-batch is, in their order.

    Within a segment a module's work begins when the parameters of all modules before it have been worked with, in
    proportion to their elements. A fetch is never later than one that comes after it: of a module that spans several
    segments, the last is recorded.
    """
    fetches = [hook for hook in order if hook.kind == "fetch"]
    elements = workload.elements
    by_segment: dict[int, list[int]] = {}
    for number, hook in enumerate(fetches):
        by_segment.setdefault(hook.segment, []).append(number)
    moments: dict[int, Moment] = {}
    for segment, numbers in by_segment.items():
        is_backward = workload.segments[segment].phase == "backward"
        again = [place for place, n in enumerate(numbers) if is_backward and fetches[n].phase == "forward"]
        first_own = again[-1] + 1 if again else 0
        for own, group in enumerate((numbers[:first_own], numbers[first_own:])):
            counts = [own or fetches[n].phase == "forward" for n in group]
            sizes = [
                sum(elements[p] for p in fetches[n].parameters) if counted else 0
                for n, counted in zip(group, counts, strict=True)
            ]
            for number, (begin, _) in zip(group, _shares(sizes), strict=True):
                moments[number] = (segment, own, begin)
    ordered = [moments[number] for number in range(len(fetches))]
    for number in reversed(range(len(ordered) - 1)):
        ordered[number] = min(ordered[number], ordered[number + 1])
    return tuple(zip(fetches, ordered, strict=True))


@lru_cache(maxsize=16)
def gradient_moments(workload: Workload, order: tuple[int, ...]) -> Mapping[int, Moment]:
    """Returns when the gradient of each parameter comes to be reduced, given in that order; none before an earlier."""
    elements = workload.elements
    complete: dict[int, Moment] = {}
    for position, segment in enumerate(workload.segments):
        shares = _shares([elements[index] for index in segment.gradients])
        complete.update((index, (position, 1, end)) for index, (_, end) in zip(segment.gradients, shares, strict=True))
    latest: Moment = (0, 0, 0)
    come: dict[int, Moment] = {}
    for index in order:
        latest = come[index] = max(latest, complete.get(index, latest))
    return come


def _shares(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Returns where each of consecutive sizes begins and ends, in parts of `WHOLE`."""
    total, before = sum(sizes), 0
    shares = []
    for size in sizes:
        begin, before = before, before + size
        shares.append((begin * WHOLE // total, before * WHOLE // total) if total else (0, WHOLE))
    return shares


@lru_cache(maxsize=32)
def work_between(
    workload: Workload, assignment: Assignment, moments: tuple[Moment, ...]
) -> tuple[tuple[Compute, ...], ...]:
    """Returns the work of a micro-batch before the first of ascending moments, then between them, then to the end."""
    zones = _zones(workload, assignment)
    found, at, done = [], 0, 0
    for moment in (*moments, (len(workload.segments), 0, 0)):
        work: list[Compute] = []
        while at < len(zones) and zones[at][0] < moment[:2]:
            work += _stretch(zones[at][1], done, WHOLE)
            at, done = at + 1, 0
        if at < len(zones) and zones[at][0] == moment[:2]:
            work += _stretch(zones[at][1], done, moment[2])
            done = max(done, moment[2])
        found.append(tuple(work))
    return tuple(found)


_Zone = tuple[tuple[int, int], list[tuple[Work, int]]]


def _zones(workload: Workload, assignment: Assignment) -> list[_Zone]:
    """Returns all work of a micro-batch in order: each segment's own, and before it what runs again."""
    again = recomputed_segments(workload, assignment)
    zones: list[_Zone] = []
    for position, segment in enumerate(workload.segments):
        if position in again:
            zones.append(((position, 0), [("recompute", number) for number in again[position]]))
        zones.append(((position, 1), [(segment.phase, position)]))
    return zones


def _stretch(works: Sequence[tuple[Work, int]], begin: int, end: int) -> list[Compute]:
    """Returns the works from one part of them all to another; each is as much of them as any other."""
    stretch = []
    for place, (work, segment) in enumerate(works):
        first, last = (min(max(each * len(works) - place * WHOLE, 0), WHOLE) for each in (begin, end))
        if first < last:
            stretch.append(Compute(work, segment, first, last))
    return stretch
