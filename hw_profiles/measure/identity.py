"""What each rank says of itself before anything is measured, and the fingerprint that all of it makes."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from hw_profiles.measure.asked import Asked
from hw_profiles.measure.host_facts import (
    available_bytes,
    boot_id,
    cpu_name,
    interface_name,
    limit_bytes,
    network_namespace,
    own_cores,
    resident_bytes,
)
from hw_profiles.measure.hosts import Host, place_of_cores
from hw_profiles.measure.ranks import Ranks


class Identity(BaseModel):
    """One rank's place and means."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Host
    device: str
    cores: tuple[int, ...]
    interface: str
    host_memory_bytes: int
    available_bytes: int
    """Of the host, with all ranks started."""
    resident_bytes: int


def identity(ranks: Ranks) -> Identity:
    """Returns this rank's."""
    is_cuda = ranks.device.type == "cuda"
    package, numa = place_of_cores(own_cores())
    return Identity(
        host=Host(
            name=platform.node(),
            boot=boot_id(),
            # NCCL reaches the devices of a host whatever namespaces its ranks are in; gloo only has the network.
            network="" if is_cuda else network_namespace(),
            package=package,
            numa=numa,
        ),
        device=torch.cuda.get_device_name(ranks.device) if is_cuda else cpu_name(),
        cores=own_cores(),
        interface="" if is_cuda else interface_name(),
        host_memory_bytes=limit_bytes(),
        available_bytes=available_bytes(),
        resident_bytes=resident_bytes(),
    )


def fingerprint(asked: Asked, ranks: Ranks, identities: list[Identity]) -> dict[str, Any]:
    """Returns what two measurements must have in common to share their pieces, as plain JSON values."""
    return {
        "world size": ranks.world_size,
        "hosts": list(dict.fromkeys(each.host.name for each in identities)),
        "nodes": asked.num_nodes,
        "ranks per node": asked.ranks_per_node,
        "levels": list(asked.levels) if asked.levels else None,
        "quick": asked.quick,
        "devices": list(dict.fromkeys(each.device for each in identities)),
        "transport": "NCCL" if ranks.device.type == "cuda" else "gloo",
        "interfaces": sorted({each.interface for each in identities}),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def how_measured(asked: Asked) -> str:
    """Returns when, where and with what, for people."""
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    effort = "quick" if asked.quick else "full"
    return (
        f"{day} on {platform.node()}, {os.environ['WORLD_SIZE']} ranks, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads per rank, {effort}"
    )


def crowded(identities: list[Identity]) -> tuple[str, ...]:
    """Returns a warning for each machine with more ranks on CPUs than cores for them."""
    found = []
    for boot in dict.fromkeys(each.host.boot for each in identities):
        own = [each for each in identities if each.host.boot == boot]
        cores = {core for each in own for core in each.cores}
        if len(own) > len(cores):
            found.append(
                f"{len(own)} ranks share {len(cores)} cores of {own[0].host.name}: they take turns, so small messages "
                "take longer, and vary more, than the transport needs"
            )
    return tuple(found)
