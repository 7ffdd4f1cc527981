"""Walks over a step block by block: what is alive, as sums over the manners of blocks.

The same walk as `costmodels.memory` for the ideal schedule, with the choice left open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from costmodels.fsdp.held_bytes import least_bytes
from costmodels.fsdp.holds import Arrival, Hold, Kind, Stay, arrivals, holds
from costmodels.fsdp.sizes import block_sizes
from costmodels.states import state_widths
from costmodels.strategy import StepShape
from costmodels.workload import Recomputed, Segment, Workload
from planner.block_table import BlockGroup, GroupKind, Held, Stretch, Term

SPREAD: tuple[Kind, ...] = ("spread_shard", "spread_whole")


class Walked(NamedTuple):
    """What is held through a micro-batch, as far as blocks decide it."""

    stretches: tuple[Stretch, ...]
    closing: tuple[Held, ...]
    updating: Held


def block_walk(workload: Workload, groups: Sequence[BlockGroup], shape: StepShape) -> Walked:
    """Returns what is held through each segment of a micro-batch, after the last, and in the update.

    Args:
        workload: The traced step.
        groups: Which manners each block can have.
        shape: The micro-batch, the widths and the device.
    """
    walk = _Walk(workload, groups, shape)
    walked = tuple(walk.stretch(number, segment) for number, segment in enumerate(workload.segments))
    return Walked(walked, tuple(walk.closing()), walk.updating())


class _Walk:
    def __init__(self, workload: Workload, groups: Sequence[BlockGroup], shape: StepShape) -> None:
        self._widths = state_widths(shape.precision, shape.optimizer)
        self._manners = {block: group.manners for group in groups for block in group.blocks}
        self._group = {block: group.blocks[0] for group in groups for block in group.blocks}
        self._sizes = block_sizes(workload)
        self._workload, self._shape, self._size = workload, shape, shape.micro_batch_size
        self._holds = holds(workload, shape.device == "cpu")
        self._starting: dict[int, list[Hold]] = defaultdict(list)
        self._ending: dict[int, list[Hold]] = defaultdict(list)
        for hold in self._holds.throughout:
            self._starting[hold.first].append(hold)
            self._ending[hold.last + 1].append(hold)
        self._coming: dict[int, list[Arrival]] = defaultdict(list)
        self._reduced: dict[int, list[Arrival]] = defaultdict(list)
        self._of: dict[int, list[Arrival]] = defaultdict(list)
        for arrival in arrivals(workload):
            self._coming[arrival.segment].append(arrival)
            self._reduced[arrival.until + 1].append(arrival)
            self._of[arrival.block].append(arrival)
        self._left = Held(workload.input_bytes.at(self._size))
        """What the segment before leaves."""

    def stretch(self, number: int, segment: Segment) -> Stretch:
        """Returns the next segment; called for each in order."""
        change = [self._left]
        change += [self._stay(hold.stay) for hold in self._starting[number]]
        change += [self._stay(hold.stay, -1) for hold in self._ending[number]]
        change += [self._waiting(arrival, -1) for arrival in self._reduced[number]]
        coming = self._coming[number]
        plain = _own(Recomputed(segment.timeline), len(coming), self._size)
        again = _own(segment.recomputed, len(coming), self._size) if segment.recomputed else plain
        waiting = [self._waiting(arrival, 1) for arrival in coming]
        self._left = _sum([self._either(segment, plain.net, again.net), *waiting])
        moments = [_sum([self._stay(stay) for stay in stays]) for stays in self._holds.beginnings[number]]
        moments += [
            _sum([self._either(segment, *alive), *waiting[:place]])
            for *alive, place in self._moments(segment, coming, plain, again)
        ]
        if number + 1 < len(self._workload.segments):
            moments += [_sum([self._left, each]) for each in self._endings(number)]
        return Stretch(_sum(change), _undominated(moments))

    def closing(self) -> Iterator[Held]:
        """Yields the moments of blocks that end with the last segment."""
        last = len(self._workload.segments) - 1
        held = [self._stay(hold.stay) for hold in self._holds.throughout if hold.first <= last <= hold.last]
        held += [self._waiting(each, 1) for of_block in self._of.values() for each in of_block if each.until >= last]
        for ending in self._endings(last) if last >= 0 else ():
            yield _sum([*held, ending])

    def updating(self) -> Held:
        """Returns what the update holds: what it starts to spread, which on a CPU gloo copies."""
        times = 2 if self._shape.device == "cpu" else 1
        stays = (Stay(block, kind, times) for block in self._holds.at_rest for kind in SPREAD)
        return _sum([self._stay(stay) for stay in stays])

    def _endings(self, number: int) -> Iterator[Held]:
        """Yields the moments of blocks that end with a segment, beyond what is held at its end."""
        for ending in self._holds.endings[number]:
            over = [self._waiting(arrival, -1) for block in ending.before for arrival in self._of[block]]
            own = [self._waiting(arrival, -1) for arrival in self._of[ending.block]]
            yield _sum([*over, *(self._stay(stay) for stay in ending.filled)])
            yield _sum([*over, *own, *(self._stay(stay) for stay in ending.sent)])

    def _moments(self, segment: Segment, coming: Sequence[Arrival], plain: _Own, again: _Own) -> list[list[int]]:
        """Returns (bytes alive, the same if recomputed, gradients that wait) of moments that can be the greatest."""
        arriving = [self._widths.gradient * arrival.elements for arrival in coming]
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
        num_bytes = sign * self._widths.gradient * arrival.elements
        manners = self._manners[arrival.block]
        return self._term(arrival.block, [num_bytes if manner.reducing == "each" else 0 for manner in manners])

    def _stay(self, stay: Stay, sign: int = 1) -> Held:
        times, sizes = sign * stay.times, self._sizes[stay.block]
        manners = self._manners[stay.block]
        held = self._term(
            stay.block, [times * least_bytes(stay.kind, sizes, manner, self._widths) for manner in manners]
        )
        return replace(held, apart=(GroupKind(self._group[stay.block], stay.kind, times),))

    def _term(self, block: int, values: Sequence[int]) -> Held:
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
    apart: dict[tuple[int, Kind], int] = {}
    for group, kind, times in (each for part in parts for each in part.apart):
        apart[group, kind] = apart.get((group, kind), 0) + times
    for term in (term for part in parts for term in part.terms):
        old = terms.get(term.block)
        terms[term.block] = _both(old, term) if old else term
    return Held(
        sum(part.constant for part in parts),
        tuple(term for term in terms.values() if any(term.by_manner) or term.if_recomputed),
        sum(part.if_all_recomputed for part in parts),
        tuple(GroupKind(*key, times) for key, times in apart.items() if times),
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
    if any(times < 0 for _, _, times in more.apart):
        return False
    slack = more.constant + min(0, more.if_all_recomputed)
    return slack + sum(min(term.by_manner) + min(0, term.if_recomputed) for term in more.terms) >= 0


def _negative(held: Held) -> Held:
    terms = tuple(
        Term(term.block, tuple(-value for value in term.by_manner), -term.if_recomputed) for term in held.terms
    )
    apart = tuple(GroupKind(group, kind, -times) for group, kind, times in held.apart)
    return Held(-held.constant, terms, -held.if_all_recomputed, apart)
