"""Finds the memory that can really be had, with all ranks asking at once. Runs on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hw_profiles.measure.host_facts import available_bytes, boot_id
from hw_profiles.measure.identity import Identity
from hw_profiles.measure.ranks import Ranks

_STEPS = 128
"""Into which a device's free memory is divided to find how much of it one allocation can have."""


def free_bytes(ranks: Ranks) -> int:
    """Returns the bytes that each rank can still have, if all take as much; the same on every rank."""
    if ranks.device.type == "cuda":
        own = torch.cuda.mem_get_info(ranks.device)[0]
    else:
        places = ranks.gathered((available_bytes(), boot_id()))
        here = places[ranks.rank][1]
        own = places[ranks.rank][0] // sum(place == here for _, place in places)
    return -int(ranks.slowest([-own])[0])


def memory_of_rank(ranks: Ranks, identities: Sequence[Identity]) -> dict[str, Any]:
    """Returns the fields of a measurement that are about a rank's memory: the least of all ranks."""
    if ranks.device.type == "cuda":
        total, gone = _device_memory(ranks)
    else:
        total, gone = _share_of_host(identities, ranks.rank)
    found = ranks.gathered((identities[ranks.rank].device, total, gone))
    return {
        "memory_bytes": min(total for _, total, _ in found),
        "memory_bytes_by_device": {name: min(t for n, t, _ in found if n == name) for name, _, _ in sorted(found)},
        "reserved_bytes": max(gone for _, _, gone in found),
    }


def _share_of_host(identities: Sequence[Identity], rank: int) -> tuple[int, int]:
    """Returns a rank's equal part of its host's memory, and of it what the rank itself, or others, hold already."""
    own = identities[rank]
    ranks_here = sum(each.host.boot == own.host.boot for each in identities)
    held = max(own.host_memory_bytes - own.available_bytes, 0) // ranks_here
    return own.host_memory_bytes // ranks_here, max(held, own.resident_bytes)


def _device_memory(ranks: Ranks) -> tuple[int, int]:
    """Returns a device's bytes, and of them those that no tensor can have, by trying."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(ranks.device)
    ranks.together()
    step = max(free // _STEPS, 1)
    had = free
    while had > 0 and not _can_have(had, ranks.device):
        had -= step
    ranks.together()
    return total, max(total - max(had, 1), 1)


def _can_have(num_bytes: int, device: torch.device) -> bool:
    try:
        torch.empty(num_bytes, dtype=torch.uint8, device=device)
    except torch.cuda.OutOfMemoryError:
        return False
    torch.cuda.empty_cache()
    return True
