"""Bytes that a step surely needs, from a part of what an engine holds."""

from __future__ import annotations

from functools import lru_cache

from costmodels.engine import Assignment, EngineMemory
from costmodels.memory import at_rest
from costmodels.places import Places, places
from costmodels.strategy import StepShape
from costmodels.workload import Workload


def least_peak_bytes(workload: Workload, engine_memory: EngineMemory, assignment: Assignment, shape: StepShape) -> int:
    """Returns bytes that the peak of a step is not below.

    Args:
        workload: The traced step.
        engine_memory: `Engine.least_memory`: what is held at rest and in the update, or less.
        assignment: One strategy per class of blocks, which says what is recomputed.
        shape: The micro-batch size is what activations grow with.
    """
    found = places(workload, assignment, with_entering=False)
    beyond_bytes = max(_most_activation_bytes(found, shape.micro_batch_size), engine_memory.during_update.total_bytes)
    return at_rest(workload, engine_memory).total_bytes + beyond_bytes


@lru_cache(maxsize=256)
def _most_activation_bytes(found: Places, micro_batch_size: int) -> int:
    return int(found.activation_bytes(micro_batch_size).max(initial=0))
