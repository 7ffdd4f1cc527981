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
from planner.block_table import BlockGroup, Held, Stretch, Term, groups_of_blocks


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
        numbers = groups_of_blocks(groups)
        self._manners = [groups[numbers[block]].manners for block in range(len(workload.blocks))]
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
        moments = []
        if segment.phase == "backward":
            moments.append(self._own(segment, lambda own: own.again.peak_bytes(self._size)))
        waiting = [Held()]
        for place, arrival in enumerate([*self._coming[number], None]):
            moments.append(_sum([again_net, self._peak(segment, place), *waiting]))
            if arrival is not None:
                coming = Held(arrival.num_bytes)
                moments.append(_sum([again_net, self._completing(segment, place), coming, *waiting]))
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
        return _of_block(block, values)

    def _own(self, segment: Segment, amount: Callable[[Recomputed], int]) -> Held:
        """Returns an amount of the segment's own timeline, and of the forward that runs again."""
        plain = amount(Recomputed(segment.timeline))
        again = amount(segment.recomputed) if segment.recomputed else plain
        if not self._workload.blocks[segment.block].recomputable:
            return Held(plain, (), again - plain)
        manners = self._manners[segment.block]
        return _of_block(segment.block, tuple(again if each.is_recomputed else plain for each in manners))


def _of_block(block: int, values: tuple[int, ...]) -> Held:
    """Returns the values with their least one as a constant."""
    least = min(values)
    above = tuple(value - least for value in values)
    return Held(least, (Term(block, above),) if any(above) else ())


def _sum(parts: Sequence[Held]) -> Held:
    by_block: dict[int, tuple[int, ...]] = {}
    for part in parts:
        for term in part.terms:
            old = by_block.get(term.block, (0,) * len(term.bytes_by_manner))
            by_block[term.block] = tuple(a + b for a, b in zip(old, term.bytes_by_manner, strict=True))
    together = [_of_block(block, values) for block, values in by_block.items()]
    return Held(
        sum(part.constant_bytes for part in (*parts, *together)),
        tuple(term for part in together for term in part.terms),
        sum(part.all_recomputed_bytes for part in parts),
    )


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
    theirs = {term.block: term.bytes_by_manner for term in less.terms}
    slack = greater.constant_bytes - less.constant_bytes
    slack += min(0, greater.all_recomputed_bytes - less.all_recomputed_bytes)
    for term in greater.terms:
        other = theirs.pop(term.block, (0,) * len(term.bytes_by_manner))
        slack += min(mine - its for mine, its in zip(term.bytes_by_manner, other, strict=True))
    return slack - sum(max(values) for values in theirs.values()) >= 0
