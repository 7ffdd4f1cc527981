"""What DeepSpeed 0.19.8 holds between two steps on the fullest rank, whatever its stage."""

from __future__ import annotations

from costmodels.deepspeed import memory_gathered, memory_offload, memory_partitioned, memory_replicated
from costmodels.deepspeed.memory_sizes import Sizes
from costmodels.engine import Assignment, Components


def at_rest(sizes: Sizes, assignment: Assignment) -> Components:
    """Returns the bytes between two steps on the device, by purpose."""
    offloads = assignment[0].offload != "none"
    if sizes.knobs.stage == 0:
        return memory_replicated.at_rest(sizes)
    if sizes.knobs.stage < 3 and offloads:
        return memory_offload.rest_partitioned(memory_offload.PartitionedOffload(sizes))
    if sizes.knobs.stage < 3:
        return memory_partitioned.at_rest(memory_partitioned.Partitioned(sizes))
    if offloads:
        return memory_offload.rest_gathered(memory_offload.GatheredOffload(sizes, assignment))
    return memory_gathered.at_rest(memory_gathered.Gathered(sizes, assignment))
