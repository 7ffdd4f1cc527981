"""Times how much of a message runs beside compute on the cores that carry both. Runs on every rank."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from hw_profiles.measure.ranks import Ranks

_FIRST_BYTES, _LARGEST_BYTES = 1 << 18, 1 << 26
_ELEMENT_BYTES = 4
_WIDTH = 256
_REPETITIONS = 7


def overlap(ranks: Ranks, quick: bool) -> float:
    """Returns the part of the shorter of an all-reduce over all ranks and as long a compute that the other hides.

    0: both together take as long as one after the other, as they do where messages are copied by the cores that
    compute. 1: as long as the longer one, as they do where slow links carry the messages.
    """
    if ranks.world_size == 1:
        return 0.0
    message, message_s = _message(ranks, 0.05 if quick else 0.15)
    left, right = (torch.ones(_WIDTH, _WIDTH) for _ in range(2))
    target = torch.empty_like(left)
    torch.mm(left, right, out=target)
    once_s = _slowest_s(ranks, lambda: torch.mm(left, right, out=target))
    num_products = max(round(message_s / once_s), 1)

    def compute() -> None:
        for _ in range(num_products):
            torch.mm(left, right, out=target)

    def both() -> None:
        work = dist.all_reduce(message, async_op=True)
        compute()
        work.wait()

    found = []
    for _ in range(_REPETITIONS):
        alone_s = [_slowest_s(ranks, compute), _slowest_s(ranks, lambda: dist.all_reduce(message))]
        found.append((sum(alone_s) - _slowest_s(ranks, both)) / min(alone_s))
    return min(max(statistics.median(found), 0.0), 1.0)


def _message(ranks: Ranks, least_s: float) -> tuple[torch.Tensor, float]:
    """Returns a message that takes so long, or the largest, and its seconds."""
    size_bytes = _FIRST_BYTES
    while True:
        message = torch.zeros(size_bytes // _ELEMENT_BYTES)
        dist.all_reduce(message)
        seconds = _slowest_s(ranks, lambda message=message: dist.all_reduce(message))  # type: ignore[misc]
        if seconds >= least_s or size_bytes >= _LARGEST_BYTES:
            return message, seconds
        size_bytes *= 2


def _slowest_s(ranks: Ranks, call: Callable[[], object]) -> float:
    ranks.together()
    begun_s = time.perf_counter()
    call()
    return ranks.slowest([time.perf_counter() - begun_s])[0]
