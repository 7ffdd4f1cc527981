"""Walks over a step block by block: what is alive, as sums over the manners of blocks.

The same walk as `costmodels.memory` for the ideal schedule, with the choice left open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from costmodels.fsdp.holds import Arrival, Hold, Manner, arrivals, holds
from costmodels.states import state_widths
from costmodels.strategy import StepShape
from costmodels.workload import Recomputed, Segment, Workload
from planner.block_table import BlockGroup, Held, Stretch, Term


def stretches(workload: Workload, groups: Sequence[BlockGroup], shape: StepShape) -> tuple[Stretch, ...]:
    """Returns what is held through each segment of a micro-batch, as far as blocks decide it.

    Args:
        workload: The traced step.
        groups: Which manners each block can have.
        shape: The micro-batch and the widths.
    """
    walk = _Walk(workload, groups, shape)
    return tuple(walk.stretch(number, segment) for number, segment in enumerate(workload.segments))


class _Walk:
    def __init__(self, workload: Workload, groups: Sequence[BlockGroup], shape: StepShape) -> None:
        widths = state_widths(shape.precision, shape.optimizer)
        self._manners = {block: group.manners for group in groups for block in group.blocks}
        self._workload, self._size = workload, shape.micro_batch_size
        self._starting: dict[int, list[Hold]] = defaultdict(list)
        self._ending: dict[int, list[Hold]] = defaultdict(list)
        for hold in holds(workload, widths):
            self._starting[hold.first].append(hold)
            self._ending[hold.last + 1].append(hold)
        self._coming: dict[int, list[Arrival]] = defaultdict(list)
        self._reduced: dict[int, list[Arrival]] = defaultdict(list)
        for arrival in arrivals(workload, widths):
            self._coming[arrival.segment].append(arrival)
            self._reduced[arrival.until + 1].append(arrival)
        self._left = Held(workload.input_bytes.at(self._size))
        """What the segment before leaves."""

    def stretch(self, number: int, segment: Segment) -> Stretch:
        """Returns the next segment; called for each in order."""
        change = [self._left]
        change += [self._term(hold.block, hold.holds, hold.num_bytes) for hold in self._starting[number]]
        change += [self._term(hold.block, hold.holds, -hold.num_bytes) for hold in self._ending[number]]
        change += [self._waiting(arrival, -1) for arrival in self._reduced[number]]
        coming = self._coming[number]
        plain = _own(Recomputed(segment.timeline), len(coming), self._size)
        again = _own(segment.recomputed, len(coming), self._size) if segment.recomputed else plain
        waiting = [self._waiting(arrival, 1) for arrival in coming]
        self._left = _sum([self._either(segment, plain.net, again.net), *waiting])
        moments = [
            _sum([self._either(segment, *alive), *waiting[:place]])
            for *alive, place in self._moments(segment, coming, plain, again)
        ]
        return Stretch(_sum(change), _undominated(moments), segment.phase == "backward")

    def _moments(self, segment: Segment, coming: Sequence[Arrival], plain: _Own, again: _Own) -> list[list[int]]:
        """Returns (bytes alive, the same if recomputed, gradients that wait) of moments that can be the greatest."""
        arriving = [arrival.num_bytes for arrival in coming]
        found = [[plain.again, again.again, 0]]
        for place in range(len(coming) + 1):
            found.append([plain.peaks[place], again.peaks[place], place])
            if place < len(coming):
                more = arriving[place]
                found.append([plain.completing[place] + more, again.completing[place] + more, place])
                if not plain.is_told:
                    found.append([plain.again + more, again.again + more, place])
            if not plain.is_told:
                found.append([plain.again, again.again, place])
        if any(arrival.block != segment.block for arrival in coming):
            return found
        # Gradients that wait do so all together, or not at all.
        with_waiting = [(one, other, sum(arriving[:place])) for one, other, place in found]
        corners = [(one, other, one + more, other + more) for one, other, more in with_waiting]
        return [
            each
            for number, each in enumerate(found)
            if not any(
                all(theirs >= mine for theirs, mine in zip(corners[rival], corners[number], strict=True))
                and (rival < number or corners[rival] != corners[number])
                for rival in range(len(found))
            )
        ]

    def _waiting(self, arrival: Arrival, sign: int) -> Held:
        return self._term(arrival.block, lambda manner: manner.is_reduced, sign * arrival.num_bytes)

    def _term(self, block: int, holds: Callable[[Manner], bool], num_bytes: int) -> Held:
        values = tuple(num_bytes if holds(manner) else 0 for manner in self._manners[block])
        least = min(values)
        above = tuple(value - least for value in values)
        return Held(least, (Term(block, above),) if any(above) else ())

    def _either(self, segment: Segment, plain: int, again: int) -> Held:
        """Returns bytes of the segment's own: as it is, or where its block is recomputed."""
        if not self._workload.blocks[segment.block].recomputable:
            return Held(plain, (), again - plain)
        manners = (0,) * len(self._manners[segment.block])
        return Held(plain, (Term(segment.block, manners, again - plain),) if again != plain else ())


class _Own(NamedTuple):
    """Live bytes of one segment beyond those at its beginning."""

    again: int
    """At the peak of the forward that runs again before it."""
    peaks: tuple[int, ...]
    """Before the first gradient is complete, from then to the second, and so on."""
    completing: tuple[int, ...]
    net: int
    is_told: bool
    """Whether the segment says when its gradients are complete; if not, its peak counts at all times."""


def _own(found: Recomputed, num_gradients: int, size: int) -> _Own:
    again_bytes = found.again.net_bytes.at(size)
    is_told = len(found.timeline.completed) == num_gradients
    if is_told:
        peaks, completing = found.timeline.peaks_bytes(size), found.timeline.completing_bytes(size)
    else:
        peak_bytes = found.timeline.peak_bytes(size)
        peaks, completing = (peak_bytes,) * (num_gradients + 1), (peak_bytes,) * num_gradients
    return _Own(
        found.again.peak_bytes(size),
        tuple(again_bytes + each for each in peaks),
        tuple(again_bytes + each for each in completing),
        again_bytes + found.timeline.net_bytes.at(size),
        is_told,
    )


def _sum(parts: Sequence[Held]) -> Held:
    terms: dict[int, Term] = {}
    for term in (term for part in parts for term in part.terms):
        old = terms.get(term.block)
        terms[term.block] = _both(old, term) if old else term
    return Held(
        sum(part.constant for part in parts),
        tuple(term for term in terms.values() if any(term.by_manner) or term.if_recomputed),
        sum(part.if_all_recomputed for part in parts),
    )


def _both(one: Term, other: Term) -> Term:
    by_manner = tuple(a + b for a, b in zip(one.by_manner, other.by_manner, strict=True))
    return Term(one.block, by_manner, one.if_recomputed + other.if_recomputed)


def _undominated(moments: Sequence[Held]) -> tuple[Held, ...]:
    """Returns the moments that can be the greatest, in order, of equals the first."""
    kept: list[Held] = []
    for moment in moments:
        if not any(_bounds(other, moment) for other in kept):
            kept = [other for other in kept if not _bounds(moment, other)]
            kept.append(moment)
    return tuple(kept)


def _bounds(greater: Held, less: Held) -> bool:
    """Returns whether one is at least the other whatever is chosen."""
    more = _sum([greater, _negative(less)])
    slack = more.constant + min(0, more.if_all_recomputed)
    return slack + sum(min(term.by_manner) + min(0, term.if_recomputed) for term in more.terms) >= 0


def _negative(held: Held) -> Held:
    terms = tuple(
        Term(term.block, tuple(-value for value in term.by_manner), -term.if_recomputed) for term in held.terms
    )
    return Held(-held.constant, terms, -held.if_all_recomputed)
