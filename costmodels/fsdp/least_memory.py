"""A part of what the fsdp engine holds that is quick to count: enough to know of many that they cannot fit."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from costmodels.engine import Assignment, Components, EngineMemory
from costmodels.states import model_state_bytes
from costmodels.strategy import StepShape
from costmodels.workload import Workload


def least_memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    """Returns of `memory` the shards of parameters and optimizer states, without what they are padded with.

    Args:
        workload: The traced step.
        assignment: One strategy per class of blocks; what is recomputed does not count.
        shape: Precision and optimizer.
    """
    plain = tuple(replace(strategy, recompute="none") for strategy in assignment)
    return _least_memory(workload, plain, replace(shape, micro_batch_size=1, num_micro_batches=1))


@lru_cache(maxsize=128)
def _least_memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    states = model_state_bytes(workload, assignment, shape)
    held = Components(parameters=states.parameters, optimizer_states=states.optimizer_states)
    return EngineMemory(at_rest=held, init_peak_bytes=0, during_update=Components())
