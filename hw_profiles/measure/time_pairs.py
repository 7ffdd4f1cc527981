"""Times what one rank sends to another while all others are silent. Runs on every rank."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from hw_profiles.measure.ranks import Ranks
from hw_profiles.schema import Pair

_MOST = 16
"""Ranks, or nodes, of which all pairs are timed."""
_SIZES = tuple(1 << power for power in (18, 20, 22, 24, 26))
_TINY = 8
_ROUND_TRIPS = 9


def pairs_to_time(num_nodes: int, ranks_per_node: int) -> tuple[tuple[int, int], ...]:
    """Returns (source, target) of all ranks if they are few, else of the first node and of the nodes' first ranks."""
    world_size = num_nodes * ranks_per_node
    if world_size <= _MOST:
        members = [tuple(range(world_size))]
    else:
        inside = tuple(range(ranks_per_node)) if ranks_per_node <= _MOST else ()
        members = [inside, tuple(range(0, min(num_nodes, _MOST) * ranks_per_node, ranks_per_node))]
    return tuple((a, b) for group in members for a in group for b in group if a != b)


def time_pairs(pairs: Sequence[tuple[int, int]], ranks: Ranks, seconds_per_pair: float) -> list[Pair]:
    """Returns what each source was measured to send to its target, the same on every rank."""
    found: list[float] = []
    for source, target in pairs:
        ranks.together()
        found += _one_way(ranks, source, target, seconds_per_pair) if ranks.rank in (source, target) else (0.0, 0.0)
    # Only a pair's source knows; all others have 0.
    values = ranks.slowest(found)
    return [
        Pair(source=source, target=target, bytes_per_s=values[2 * index], latency_s=values[2 * index + 1])
        for index, (source, target) in enumerate(pairs)
    ]


def _one_way(ranks: Ranks, source: int, target: int, seconds_per_pair: float) -> tuple[float, float]:
    """Returns bytes per second and the seconds of the smallest message; on the source, else zeros."""
    trip = _Trip(ranks, source, target)
    trip.seconds(_TINY)
    tiny = [trip.seconds(_TINY) / 2 for _ in range(_ROUND_TRIPS)]
    trip.seconds(_SIZES[0])
    probe_s = trip.seconds(_SIZES[0])
    times = trip.agreed(max(1, int(seconds_per_pair / 4 / probe_s)))
    size_bytes = max(size for size in _SIZES if size <= max(_SIZES[0] * times, _SIZES[0]))
    trip.seconds(size_bytes)
    large = [trip.seconds(size_bytes) for _ in range(3)]
    return (bytes_per_s(size_bytes, large, tiny), statistics.median(tiny)) if ranks.rank == source else (0.0, 0.0)


def bytes_per_s(size_bytes: int, large: Sequence[float], tiny: Sequence[float]) -> float:
    """Returns the bandwidth of a message by the least of its times, less the least that an empty one took.

    What disturbs a message only ever slows it. Where both are start-ups alone, no more than half of the time is taken
    off: a difference of noise is no bandwidth.

    Args:
        size_bytes: of the large message.
        large: seconds of the large message with an empty answer, each time.
        tiny: seconds of an empty message, each time.
    """
    least_s = min(large)
    return size_bytes / max(least_s - min(tiny), least_s / 2)


class _Trip:
    """Messages from the source, which the target answers with the smallest one."""

    def __init__(self, ranks: Ranks, source: int, target: int) -> None:
        self._ranks = ranks
        self._is_source = ranks.rank == source
        self._other = target if self._is_source else source
        self._answer = torch.zeros(_TINY // 4, device=ranks.device)

    def seconds(self, size_bytes: int) -> float:
        """Returns the seconds of a message there and its answer."""
        message = torch.empty(size_bytes // 4, device=self._ranks.device).fill_(0.0)
        self._ranks.finish()
        begun = time.perf_counter()
        if self._is_source:
            dist.send(message, self._other)
            dist.recv(self._answer, self._other)
        else:
            dist.recv(message, self._other)
            dist.send(self._answer, self._other)
        self._ranks.finish()
        return time.perf_counter() - begun

    def agreed(self, number: int) -> int:
        """Returns the source's number, on both."""
        value = torch.tensor([number])
        if self._is_source:
            dist.send(value, self._other)
        else:
            dist.recv(value, self._other)
        return int(value)
