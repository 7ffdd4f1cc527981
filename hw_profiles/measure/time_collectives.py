"""Times collectives over every kind of shard group, all groups of a kind at once. Runs on every rank."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from hw_profiles.measure.follow_curve import Effort, follow_curve, spread
from hw_profiles.measure.ranks import Ranks
from hw_profiles.schema import CurvePoint, Operation

_ELEMENT_BYTES = 4
"""fp32: gloo has no faster path for smaller types, and NCCL moves bytes alike."""
_LEAST_BYTES = 1 << 10
_BACK_TO_BACK = 5
"""Calls of one timing on a device, after one untimed that brings the ranks together there: the host's launches and the
ranks' unequal starts then stay out. Source: nccl-tests, src/common.cu, which times 20 in a row."""
_MOST_IN_A_ROW = 50
"""Calls of one timing between processes."""
_BUFFERS = 6
"""Times a message's bytes that its collective may hold: what is sent and received, the shard, and gloo's copies."""


def own_group(ranks: Ranks, degree_from: int, degree_to: int) -> dist.ProcessGroup:
    """Makes the groups between two degrees and returns this rank's."""
    first = ranks.rank // degree_to * degree_to + ranks.rank % degree_from
    members = list(range(first, first - first % degree_to + degree_to, degree_from))
    backend = "nccl" if ranks.device.type == "cuda" else "gloo"
    # A new group does not take the world's, but waits for half an hour.
    timeout = timedelta(seconds=ranks.patience_s)
    # Only its members make a group: else a thousand ranks would wait for each other at each of hundreds of groups.
    group = dist.new_group(members, timeout=timeout, backend=backend, use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup)
    return group


def limit_bytes(free_bytes: int) -> int:
    """Returns the largest message that fits into a rank's free memory."""
    return free_bytes // _BUFFERS


def time_collective(
    operation: Operation, group: dist.ProcessGroup, ranks: Ranks, effort: Effort, largest_bytes: int
) -> list[CurvePoint]:
    """Returns the operation's curve over the groups of one kind, the same on every rank."""
    timing = _Timing(operation, group, ranks, effort.least_row_s)
    first_bytes = max(_LEAST_BYTES, 1 << (group.size() * _ELEMENT_BYTES - 1).bit_length())
    samples = follow_curve(timing.timed, first_bytes, max(largest_bytes, first_bytes), effort)
    return [
        CurvePoint(
            bytes=timing.num_elements(size_bytes) * _ELEMENT_BYTES,
            seconds=middle_mean(seconds),
            repetitions=len(seconds),
            spread=spread(seconds),
        )
        for size_bytes, seconds in samples.items()
    ]


def middle_mean(seconds: Sequence[float]) -> float:
    """Returns the mean of the middle half: of times that add up the mean counts, and of disturbed ones the middle."""
    cut = len(seconds) // 4
    return statistics.fmean(sorted(seconds)[cut : len(seconds) - cut])


class _Timing:
    """The buffers of one operation, which grow with its messages."""

    def __init__(self, operation: Operation, group: dist.ProcessGroup, ranks: Ranks, least_row_s: float) -> None:
        self._operation, self._group, self._ranks = operation, group, ranks
        self._full = self._other = torch.empty(0, device=ranks.device)
        self._in_a_row: dict[int, int] = {}
        self._least_row_s = least_row_s

    def num_elements(self, size_bytes: int) -> int:
        """Returns the elements of a message of about `size_bytes` that all ranks of the group share equally."""
        return size_bytes // _ELEMENT_BYTES // self._group.size() * self._group.size()

    def timed(self, sizes: Sequence[int]) -> tuple[list[float], float]:
        """Times one message of each size; seconds of the slowest rank, and of all together."""
        begun = time.perf_counter()
        seconds = []
        for size_bytes in sizes:
            call = self._call(self.num_elements(size_bytes))
            if size_bytes not in self._in_a_row:
                self._in_a_row[size_bytes] = self._warm_up(call)
            self._ranks.finish()
            self._ranks.together()
            seconds.append(self._seconds(call, self._in_a_row[size_bytes]))
        *own, all_s = self._ranks.slowest([*seconds, time.perf_counter() - begun])
        return own, all_s

    def _warm_up(self, call: Callable[[], object]) -> int:
        """Runs the first calls, and returns how many a timing is made of."""
        if not self._in_a_row:
            # The first of a group connects its ranks.
            call()
        call()
        if self._ranks.device.type != "cpu":
            return _BACK_TO_BACK
        begun = time.perf_counter()
        call()
        (once_s,) = self._ranks.slowest([time.perf_counter() - begun])
        return min(max(int(self._least_row_s / once_s), 1), _MOST_IN_A_ROW)

    def _seconds(self, call: Callable[[], object], times: int) -> float:
        if self._ranks.device.type == "cpu":
            begun = time.perf_counter()
            for _ in range(times):
                call()
            return (time.perf_counter() - begun) / times
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        call()
        start.record()
        for _ in range(times):
            call()
        end.record()
        self._ranks.finish()
        return float(start.elapsed_time(end)) / 1e3 / times

    def _call(self, num_elements: int) -> Callable[[], object]:
        """Returns a call that runs the operation once."""
        if self._full.numel() < num_elements:
            # Written to: pages that never were are all one page of zeros, which reads faster than any memory.
            self._full = torch.empty(num_elements, device=self._ranks.device).fill_(0.0)
            self._other = torch.empty(num_elements, device=self._ranks.device).fill_(0.0)
        group = self._group
        full, other = self._full[:num_elements], self._other[:num_elements]
        shard = other[: num_elements // group.size()]
        root = dist.get_global_rank(group, 0)
        calls: dict[Operation, Callable[[], object]] = {
            "all_gather": lambda: dist.all_gather_into_tensor(full, shard, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(shard, full, group=group),
            "all_reduce": lambda: dist.all_reduce(full, group=group),
            "reduce": lambda: dist.reduce(full, root, group=group),
            "broadcast": lambda: dist.broadcast(full, root, group=group),
            "all_to_all": lambda: dist.all_to_all_single(other, full, group=group),
        }
        return calls[self._operation]
