"""The places in a step where its memory can be greatest, as arrays: the activations of any micro-batch size at once.

Within a segment, memory is told apart where an engine's own bytes change: before the first gradient of a parameter is
complete, as it comes, after it. What is alive at each such place is affine in the micro-batch size, or the greatest of
such amounts; so a step is walked once for all sizes and all strategies. Only what is recomputed makes another walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from costmodels.engine import Assignment
from costmodels.workload import Amount, Recomputed, Timeline, Workload

Int64s = NDArray[np.int64]

MOST_BYTES = 2.0**62
"""Amounts stay below this, so that sums of them are whole numbers of 64 bits."""

ENTERING, AGAIN, RUNNING = range(3)
"""What runs at a place: nothing yet, as a segment begins; the second forward of its block; the segment itself."""

_NOTHING = Timeline()


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Every place of a step but the update, in order; arrays of one entry per place where nothing else is said.

    Arrays have no hash, so that it stands for itself as a key.
    """

    segments: Int64s
    """Indices into `Workload.segments`."""
    kinds: Int64s
    positions: Int64s
    """Which part of the segment's course goes on there (`costmodels.engine.Course`)."""
    lengths: tuple[int, ...]
    """For each segment, the number of parts that tell its course."""
    moments: Int64s
    """For each moment its first place. The bytes of a moment are the most of its places."""
    alive: tuple[Int64s, Int64s]
    """Bytes that outlast the place: constant, and per sample."""
    summits: tuple[Int64s, Int64s]
    """Amounts of which the greatest is alive too; those of all places joined."""
    first_summits: Int64s

    def activation_bytes(self, micro_batch_size: int) -> Int64s:
        """Returns the activations at each place for a micro-batch of so many samples.

        Raises:
            OverflowError: They are more than a whole number of 64 bits counts.
        """
        for constants, per_sample in (self.alive, self.summits):
            greatest = np.abs(constants).max(initial=0) + float(np.abs(per_sample).max(initial=0)) * micro_batch_size
            if greatest >= MOST_BYTES:
                raise OverflowError(f"{greatest:.3g} bytes of activations are more than any machine has")
        alive, summits = (
            constants + per_sample * micro_batch_size for constants, per_sample in (self.alive, self.summits)
        )
        found: Int64s = alive + np.maximum.reduceat(summits, self.first_summits)
        return found


def places(workload: Workload, assignment: Assignment, with_entering: bool) -> Places:
    """Returns the places of a workload's step.

    Args:
        workload: The traced step.
        assignment: One strategy per class of blocks; only what is recomputed counts.
        with_entering: Whether the beginnings of segments are places of their own.
    """
    full = tuple(strategy.recompute == "full" for strategy in assignment)
    all_full = all(full[block.block_class] for block in workload.blocks if block.recomputable)
    return _places(workload, full, all_full, with_entering)


@lru_cache(maxsize=32)
def _places(workload: Workload, full: tuple[bool, ...], all_full: bool, with_entering: bool) -> Places:
    found = _Walk(workload.input_bytes)
    for number, segment in enumerate(workload.segments):
        block = workload.blocks[segment.block]
        is_full = full[block.block_class] if block.recomputable else all_full
        own = (segment.recomputed if is_full else None) or Recomputed(segment.timeline)
        if with_entering:
            found.add(number, ENTERING, [(0, (Amount(),))])
        if segment.phase == "backward":
            found.add(number, AGAIN, [(0, tuple(each for part in own.again.summits for each in part))])
            found.alive += own.again.net_bytes
        # The parts of a course: between gradients the even ones, as each comes the odd ones.
        between = [(2 * place, part) for place, part in enumerate(own.timeline.summits)]
        coming = [(2 * place + 1, (amount,)) for place, amount in enumerate(own.timeline.completing)]
        found.add(number, RUNNING, [*between, *coming])
        found.alive += own.timeline.net_bytes
        found.lengths.append(len(between) + len(coming))
    return found.places()


class _Walk:
    def __init__(self, alive: Amount) -> None:
        self.alive = alive
        self.lengths: list[int] = []
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._summits: list[Amount] = []
        self._moments: list[int] = []

    def add(self, segment: int, kind: int, parts: list[tuple[int, tuple[Amount, ...]]]) -> None:
        """Adds a moment of the places (position in the course, summits)."""
        self._moments.append(len(self._rows))
        for position, summits in parts:
            alive = self.alive
            self._rows.append((segment, kind, position, alive.constant, alive.per_sample, len(self._summits)))
            self._summits += summits

    def places(self) -> Places:
        segments, kinds, positions, constants, per_sample, first = np.array(self._rows, np.int64).reshape(-1, 6).T
        summits = np.array([(each.constant, each.per_sample) for each in self._summits], np.int64).reshape(-1, 2).T
        return Places(
            segments=segments,
            kinds=kinds,
            positions=positions,
            lengths=tuple(self.lengths),
            moments=np.array(self._moments, np.int64),
            alive=(constants, per_sample),
            summits=(summits[0], summits[1]),
            first_summits=first,
        )
