"""What stages 1 and 2 hold while gradients are reduced, bucket by bucket, on the rank that holds most.

A bucket is sent when the next gradient does not fit. Of the pieces that go to different ranks a flat copy is made; the
reduced gradients that touch a rank's partition are then copied, whole, into what that rank keeps, which is allocated
when the first of them comes. A gradient larger than the bucket is reduced where it is, and stays there until it is
copied; in stage 1 the ranks that do not keep it hold it until the step's end.

Source: `reduce_independent_p_g_buckets_and_remove_grads`, `reduce_ipg_grads`, `allreduce_and_scatter` and
`copy_grads_in_partition`, deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from costmodels.deepspeed.memory_sizes import Sizes
from costmodels.deepspeed.reduce import FlatShards, flat_copy, flat_shards
from costmodels.engine import Components
from costmodels.places import Int64s

_KEEPS_NOTHING = np.int64(-(2**62))
"""In place of the bytes of a rank that keeps nothing yet."""


@dataclass(frozen=True)
class Kept:
    """The flat buffer, and what each rank keeps of one micro-batch's reduced gradients."""

    sizes: Sizes

    @cached_property
    def flat(self) -> FlatShards:
        """The flat buffer and its partitions."""
        return flat_shards(self.sizes.workload, self.sizes.shape.world_size)

    @property
    def is_compact(self) -> bool:
        """Whether gradients accumulate in a flat fp32 partition.

        Source: `_use_compact_grad_partition_buffer`, deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8.
        """
        return self.sizes.accumulated_bytes > self.sizes.width_bytes

    @cached_property
    def owners(self) -> dict[int, range]:
        """The ranks whose partitions a parameter touches."""
        return {
            index: range(
                begin // self.flat.shard, max(begin, begin + self.sizes.elements[index] - 1) // self.flat.shard + 1
            )
            for index, begin in self.flat.begin.items()
        }

    @cached_property
    def by_rank(self) -> tuple[int, ...]:
        """Bytes that each rank keeps. Tensors are kept whole: a long one is kept by every rank that it reaches."""
        world_size = self.sizes.shape.world_size
        if self.is_compact:
            return (self.sizes.accumulated_bytes * self.flat.shard,) * world_size
        held = np.zeros(world_size, np.int64)
        for index, owners in self.owners.items():
            held[owners.start : owners.stop] += self.sizes.width_bytes * self.sizes.elements[index]
        return tuple(held.tolist())

    def leaving_bytes(self, bucket: Iterable[int]) -> int:
        """Bytes that are made of a reduced bucket to take it off the device: none, where it stays."""
        del bucket
        return 0

    @property
    def most_bytes(self) -> int:
        """Bytes that the fullest rank keeps."""
        return max(self.by_rank, default=0)


class Reduced(NamedTuple):
    """Bytes at one moment, as `Components` has them."""

    gradients: int
    buffers: int = 0
    optimizer_step: int = 0

    def beside(self, gradients: int, buffers: int) -> Components:
        """Returns them with further gradients and buffers."""
        return Components(
            gradients=self.gradients + gradients,
            buffers=self.buffers + buffers,
            optimizer_step=self.optimizer_step,
        )


class Reduction:
    """One pass over the gradients. Counted are gradients and flat copies; the buckets stay beside them."""

    def __init__(self, kept: Kept, left_bytes: int = 0) -> None:
        """Begins with `left_bytes` of gradients that exist already and go into the buckets one by one."""
        self._kept, self._sizes = kept, kept.sizes
        self._left_bytes = left_bytes
        self._was_there = left_bytes > 0
        self._waiting_bytes = 0
        self._late_bytes = 0
        self._fullest = _Fullest(kept)

    @property
    def now(self) -> Reduced:
        """What is held between two gradients; what was sent last may not be given up before the next is."""
        return Reduced(self._left_bytes + self._waiting_bytes + self._fullest.num_bytes, self._late_bytes)

    def send(self, bucket: tuple[int, ...]) -> Reduced:
        """Sends a bucket that may be empty; returns the moment at which most is held."""
        if not bucket:
            return self.now
        self._late_bytes = 0
        if self._kept.is_compact:
            self._fullest.allocate(bucket)
        copies = self._copies(bucket)
        moments = [Reduced(self.now.gradients, self._largest(copies))]
        if not self._kept.is_compact:
            beside_bytes = self._left_bytes + self._waiting_bytes
            freed_late = self._freed_late(bucket)
            allocated = self._fullest.allocate(bucket)
            is_late = np.isin(allocated, freed_late) if freed_late else np.zeros(len(allocated), bool)
            for late_bytes, ranks in ((0, allocated[~is_late]), (copies[-1], allocated[is_late])):
                if len(ranks):
                    moments.append(Reduced(beside_bytes + self._fullest.most_bytes_of(ranks), late_bytes))
        moments.append(self._leaving(bucket, copies[-1]))
        if self._sizes.knobs.stage == 1:
            self._fullest.hold(index for index in bucket if self._sizes.waits(index))
        if self._sizes.shape.device == "cpu":
            self._late_bytes = max(copies[-1], self._waiting_bytes)
        self._waiting_bytes = 0
        return max(moments, key=sum)

    def _leaving(self, bucket: tuple[int, ...], copy_bytes: int) -> Reduced:
        """What is made to take gradients off the device, beside the flat copy where gloo gives that up late."""
        made_bytes = self._kept.leaving_bytes(bucket)
        late_bytes = copy_bytes if made_bytes and self._sizes.shape.device == "cpu" else 0
        return Reduced(self.now.gradients, late_bytes, made_bytes)

    def join(self, index: int) -> None:
        """Puts a gradient into the bucket, where its own memory is given up, or lets it wait where it is."""
        num_bytes = self._sizes.width_bytes * self._sizes.elements[index]
        if self._was_there:
            self._left_bytes -= num_bytes
        if self._sizes.waits(index):
            self._waiting_bytes += num_bytes

    def _copies(self, bucket: tuple[int, ...]) -> list[int]:
        messages = self._kept.flat.messages(bucket, self._sizes.knobs)
        return [self._sizes.width_bytes * flat_copy(pieces) for _, pieces in messages]

    def _largest(self, copies: list[int]) -> int:
        """Bytes of the largest copy, with the one before it where that is given up late."""
        if self._sizes.shape.device != "cpu":
            return max(copies)
        return max(before + copy for before, copy in pairwise([0, *copies]))

    def _freed_late(self, bucket: tuple[int, ...]) -> list[int]:
        """Returns the ranks on which what is kept is allocated before the flat copy is given up.

        The rank first copies its pieces out of it.
        """
        if self._sizes.shape.device != "cpu":
            return []
        own = dict.fromkeys((index for each in bucket for index in self._kept.owners[each]), 0)
        for rank, size in self._kept.flat.slices(bucket):
            own[rank] += self._sizes.width_bytes * size
        return [rank for rank, num_bytes in own.items() if self._sizes.frees_late(num_bytes)]


class _Fullest:
    """The most that any rank holds of reduced gradients: what it keeps, and what it only has not given up."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._by_rank = np.array(kept.by_rank, np.int64)
        self._held_bytes = 0
        """Of reduced gradients on a rank that keeps none of them."""
        self._beyond = np.full(len(self._by_rank), _KEEPS_NOTHING)
        """Of the ranks that keep something, the bytes beyond `_held_bytes`: less what they have copied of it."""
        self._most: int | None = 0
        """The greatest of these, 0 before there is any; None: it has changed."""

    @property
    def num_bytes(self) -> int:
        if self._most is None:
            self._most = int(self._beyond.max())
        return self._held_bytes + self._most

    def most_bytes_of(self, ranks: Int64s) -> int:
        return self._held_bytes + int(self._beyond[ranks].max())

    def allocate(self, bucket: tuple[int, ...]) -> Int64s:
        """Returns the ranks whose first gradients these are: they allocate all that they keep."""
        found = []
        for index in bucket:
            owners = self._kept.owners[index]
            first = owners.start + np.flatnonzero(self._beyond[owners.start : owners.stop] == _KEEPS_NOTHING)
            self._beyond[first] = self._by_rank[first]
            found.append(first)
        ranks = np.concatenate(found)
        self._most = None if len(ranks) else self._most
        return ranks

    def hold(self, parameters: Iterable[int]) -> None:
        """Adds gradients that every rank but their keepers holds on to."""
        for index in parameters:
            num_bytes = self._kept.sizes.width_bytes * self._kept.sizes.elements[index]
            owners = self._kept.owners[index]
            self._held_bytes += num_bytes
            self._beyond[owners.start : owners.stop] -= num_bytes
            self._most = None
