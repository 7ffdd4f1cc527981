"""Times the messages that a step sends, by themselves: all groups of a kind at once, the slowest rank's seconds.

Each is timed as `shardplan profile` times a collective, so that the two can be compared: calls in a row for 40 ms where
ranks are processes of a CPU, for a few calls on a device, after calls that connect the ranks.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from runtime.fsdp.groups import Groups
from runtime.record_traffic import RecordedMessage

_ELEMENT_BYTES = 4
_LEAST_BYTES = 1 << 12
"""Smaller messages are all start-up, and differ from call to call by as much."""
_MOST_SIZES = 8
"""Of an operation over one kind of group: those that have most of its bytes."""
_TIMINGS = 7
_LEAST_TIMED_S, _MOST_IN_A_ROW, _ON_DEVICE = 0.04, 50, 5


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """Seconds of one message of a step."""

    operation: str
    degree_from: int
    degree_to: int
    bytes: int
    """The full message, before sharding."""
    count: int
    """Of this size in a step."""
    seconds: float
    """Mean of the middle half of the timings."""
    spread: float
    """Interquartile range of the timings over their median."""


def time_messages(messages: Sequence[RecordedMessage], groups: Groups, device: torch.device) -> list[TimedMessage]:
    """Returns the seconds of the messages of a step, of each size once; every rank calls it with the same messages."""
    found = []
    for message, count in _chosen(messages):
        group = groups.between(message.degree_from, message.degree_to, "reduce")
        num_elements = message.message_bytes // _ELEMENT_BYTES // group.size() * group.size()
        seconds = _seconds(_call(message.operation, group, num_elements, device), device)
        cut = len(seconds) // 4
        first, _, third = statistics.quantiles(seconds, n=4)
        found.append(
            TimedMessage(
                message.operation,
                message.degree_from,
                message.degree_to,
                num_elements * _ELEMENT_BYTES,
                count,
                statistics.fmean(seconds[cut : len(seconds) - cut]),
                (third - first) / statistics.median(seconds),
            )
        )
    return found


def _chosen(messages: Sequence[RecordedMessage]) -> list[tuple[RecordedMessage, int]]:
    """Returns the messages to time, with how many there are of each."""
    counts = Counter(each for each in messages if each.message_bytes >= _LEAST_BYTES)
    kinds: dict[tuple[str, int, int], list[RecordedMessage]] = {}
    for each in sorted(counts, key=lambda each: -each.message_bytes * counts[each]):
        kinds.setdefault((each.operation, each.degree_from, each.degree_to), []).append(each)
    return [(each, counts[each]) for kind in sorted(kinds) for each in sorted(kinds[kind][:_MOST_SIZES])]


def _seconds(call: Callable[[], object], device: torch.device) -> list[float]:
    """Returns the timings, sorted."""
    call()
    call()
    in_a_row = _ON_DEVICE
    if device.type == "cpu":
        once_s = _slowest([_timed(call, 1, device)])[0]
        in_a_row = min(max(int(_LEAST_TIMED_S / once_s), 1), _MOST_IN_A_ROW)
    return sorted(_slowest([_timed(call, in_a_row, device) for _ in range(_TIMINGS)]))


def _timed(call: Callable[[], object], times: int, device: torch.device) -> float:
    dist.barrier()
    if device.type == "cpu":
        begun_s = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - begun_s) / times
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    call()
    start.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize(device)
    return float(start.elapsed_time(end)) / 1e3 / times


def _slowest(seconds: list[float]) -> list[float]:
    """Returns the greatest of all ranks, of each timing."""
    gathered: list[list[float]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, seconds)
    return [max(of_all) for of_all in zip(*gathered, strict=True)]


def _call(operation: str, group: dist.ProcessGroup, num_elements: int, device: torch.device) -> Callable[[], object]:
    # Written to: pages that never were are all one page of zeros, which reads faster than any memory.
    full, other = (torch.empty(num_elements, device=device).fill_(0.0) for _ in range(2))
    shard, root = other[: num_elements // group.size()], dist.get_global_rank(group, 0)
    calls: dict[str, Callable[[], object]] = {
        "all_gather": lambda: dist.all_gather_single(full, shard, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_single(shard, full, group=group),
        "all_reduce": lambda: dist.all_reduce(full, group=group),
        "reduce": lambda: dist.reduce(full, root, group=group),
        "broadcast": lambda: dist.broadcast(full, root, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, full, group=group),
    }
    return calls[operation]
