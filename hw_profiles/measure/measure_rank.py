"""One rank's part of measuring a machine, and the program that `hw_profiles.measure` starts on each rank."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from hw_profiles.degrees import legal_degrees, nested_pairs
from hw_profiles.errors import ProfileError
from hw_profiles.measure.host_facts import cpu_name, interface_name, limit_bytes, num_cores, resident_bytes
from hw_profiles.measure.measurement import Measurement
from hw_profiles.measure.time_collectives import FULL, QUICK, time_collectives
from hw_profiles.measure.time_device import link_bytes_per_s, matmul_flop_per_s, memory_bytes_per_s, operator_launch_s

Value = TypeVar("Value")

_MANY_RANKS = 16
"""Above this, a quick measurement leaves out the degrees inside and between levels: communicators are slow to make."""


def num_accelerators() -> int:
    """Returns the accelerators that this host shows; 0 on a host of CPUs."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def measure_rank(num_nodes: int, ranks_per_node: int, quick: bool, progress: Callable[[str], None]) -> Measurement:
    """Returns what all ranks measured together, the same on every rank. Needs the launcher's environment variables.

    Raises:
        ProfileError: the launched ranks are not num_nodes x ranks_per_node, or a rank has no accelerator of its own.
    """
    device = _own_device()
    log = Path(tempfile.mkdtemp(), "nccl.log")
    if device.type == "cuda":
        # The log says which transport NCCL took; a variable that the user has set stays.
        os.environ.setdefault("NCCL_DEBUG", "INFO")
        os.environ.setdefault("NCCL_DEBUG_FILE", str(log))
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo", device_id=device if device.type == "cuda" else None
    )
    found = _measure(num_nodes, ranks_per_node, quick, progress if dist.get_rank() == 0 else _silent, device)
    dist.barrier()
    dist.destroy_process_group()
    return found


def _silent(_: str) -> None:
    pass


def _own_device() -> torch.device:
    if not num_accelerators():
        return torch.device("cpu")
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if local_rank >= num_accelerators():
        raise ProfileError(
            f"rank {local_rank} of this host has no accelerator of its own: {num_accelerators()} are visible; start at "
            "most that many ranks per node",
            key="ranks_per_node",
            value=local_rank + 1,
            expected=f"at most {num_accelerators()}",
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _measure(
    num_nodes: int, ranks_per_node: int, quick: bool, progress: Callable[[str], None], device: torch.device
) -> Measurement:
    world_size = dist.get_world_size()
    if num_nodes * ranks_per_node != world_size:
        raise ProfileError(
            f"{num_nodes} nodes x {ranks_per_node} ranks are not the {world_size} ranks launched",
            key="num_nodes",
            value=num_nodes,
            expected=f"a divisor of {world_size}",
        )
    hosts = _gathered(platform.node())
    ranks_here = hosts.count(platform.node())
    own_bytes = resident_bytes()
    degrees = legal_degrees((ranks_per_node, num_nodes))
    if quick and world_size > _MANY_RANKS:
        degrees = (1, ranks_per_node, world_size)
    progress("matrix products")
    rates = matmul_flop_per_s(device, quick)
    progress("memory")
    copied_bytes_per_s, linked_bytes_per_s = memory_bytes_per_s(device, quick), link_bytes_per_s(device, quick)
    launch_s = operator_launch_s(quick)
    curves = time_collectives(nested_pairs(degrees), QUICK if quick else FULL, device, progress)
    memory_bytes, reserved_bytes = _memory(device, ranks_here, own_bytes)
    return Measurement(
        num_nodes=num_nodes,
        ranks_per_node=ranks_per_node,
        logical=device.type == "cpu" and ranks_here == world_size,
        kind="cuda" if device.type == "cuda" else "cpu",
        device_name=_same_name(torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()),
        memory_bytes=min(_gathered(memory_bytes)),
        reserved_bytes=max(_gathered(reserved_bytes)),
        host_memory_bytes=min(_gathered(limit_bytes())),
        num_cores=min(_gathered(num_cores())),
        matmul_flop_per_s=rates,
        memory_bytes_per_s=copied_bytes_per_s,
        link_bytes_per_s=linked_bytes_per_s,
        operator_launch_s=launch_s,
        curves=curves,
        how=_gathered(_how(num_nodes, ranks_per_node, device))[0],
    )


def _memory(device: torch.device, ranks_here: int, own_bytes: int) -> tuple[int, int]:
    """Returns bytes of this rank's memory, and of it those that are gone before any tensor."""
    if device.type == "cpu":
        return limit_bytes() // ranks_here, own_bytes
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    return total_bytes, max(total_bytes - free_bytes - torch.cuda.memory_reserved(device), 1)


def _gathered(value: Value) -> list[Value]:
    values: list[Value] = [value] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def _same_name(name: str) -> str:
    """Returns the device's name; those of all ranks where they differ, as the slowest then counts."""
    return " + ".join(sorted(set(_gathered(name))))


def _how(num_nodes: int, ranks_per_node: int, device: torch.device) -> str:
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    transport = f"gloo over TCP, interface {interface_name()}" if device.type == "cpu" else _nccl_transport()
    return (
        f"{day} on {platform.node()}, {num_nodes} x {ranks_per_node} ranks, {transport}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads per rank"
    )


def _nccl_transport() -> str:
    """Returns the network that NCCL says it took, by its own log; inside one node it names none."""
    path = Path(os.environ.get("NCCL_DEBUG_FILE", ""))
    text = path.read_text(errors="replace") if path.is_file() else ""
    named = sorted(set(re.findall(r"Using network (\w+)", text)))
    devices = sorted(set(re.findall(r"NET/\w+ : Using (\[[^\n]*)", text)))
    version = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    return " ".join((f"NCCL {version}", *(f"network {name}" for name in named), *devices[:1]))


def main() -> None:
    """Measures under torchrun; rank 0 prints its progress and writes the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--ranks-per-node", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    def say(text: str) -> None:
        print(text, flush=True)  # noqa: T201 - the parent process reads it

    measurement = measure_rank(arguments.nodes, arguments.ranks_per_node, arguments.quick, say)
    if os.environ["RANK"] == "0":
        arguments.out.write_text(measurement.model_dump_json())


if __name__ == "__main__":
    main()
