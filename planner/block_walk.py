"""Walks over a step block by block: what is alive, as sums over the manners of blocks.

The same walk as `costmodels.memory` for the ideal schedule, with the choice left open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

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
        again_net = self._own(segment, lambda own: own.again.net_bytes.at(self._size))
        again = self._own(segment, lambda own: own.again.peak_bytes(self._size))
        moments = []
        waiting = [Held()]
        for place, arrival in enumerate([*self._coming[number], None]):
            if place == 0 or not self._tells(segment):
                moments.append(_sum([again, *waiting]))
            moments.append(_sum([again_net, self._peak(segment, place), *waiting]))
            if arrival is not None:
                coming = Held(arrival.num_bytes)
                moments.append(_sum([again_net, self._completing(segment, place), coming, *waiting]))
                moments += [] if self._tells(segment) else [_sum([again, coming, *waiting])]
                waiting.append(self._waiting(arrival, 1))
        net = self._own(segment, lambda own: own.timeline.net_bytes.at(self._size))
        self._left = _sum([again_net, net, *waiting])
        return Stretch(_sum(change), _undominated(moments), segment.phase == "backward")

    def _peak(self, segment: Segment, place: int) -> Held:
        """Returns the greatest live bytes between two gradients; of the whole segment where it does not say when."""
        if self._tells(segment):
            return self._own(segment, lambda own: own.timeline.peaks_bytes(self._size)[place])
        return self._own(segment, lambda own: own.timeline.peak_bytes(self._size))

    def _completing(self, segment: Segment, place: int) -> Held:
        """Returns live bytes as a gradient comes; the segment's greatest where it does not say when."""
        if self._tells(segment):
            return self._own(segment, lambda own: own.timeline.completing_bytes(self._size)[place])
        return self._own(segment, lambda own: own.timeline.peak_bytes(self._size))

    def _tells(self, segment: Segment) -> bool:
        return len(segment.timeline.completed) == len(segment.gradients)

    def _waiting(self, arrival: Arrival, sign: int) -> Held:
        return self._term(arrival.block, lambda manner: manner.is_reduced, sign * arrival.num_bytes)

    def _term(self, block: int, holds: Callable[[Manner], bool], num_bytes: int) -> Held:
        values = tuple(num_bytes if holds(manner) else 0 for manner in self._manners[block])
        least = min(values)
        above = tuple(value - least for value in values)
        return Held(least, (Term(block, above),) if any(above) else ())

    def _own(self, segment: Segment, amount: Callable[[Recomputed], int]) -> Held:
        """Returns an amount of the segment's own timeline, and of the forward that runs again."""
        plain = amount(Recomputed(segment.timeline))
        more = amount(segment.recomputed) - plain if segment.recomputed else 0
        if not self._workload.blocks[segment.block].recomputable:
            return Held(plain, (), more)
        manners = (0,) * len(self._manners[segment.block])
        return Held(plain, (Term(segment.block, manners, more),) if more else ())


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
