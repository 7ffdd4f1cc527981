"""A part of what DeepSpeed holds that is quick to count: enough to know of most strategies that they cannot fit."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from costmodels.deepspeed.knobs import choose_knobs
from costmodels.deepspeed.memory_at_rest import at_rest
from costmodels.deepspeed.memory_gathered import Gathered
from costmodels.deepspeed.memory_sizes import Sizes
from costmodels.engine import Assignment, Components, EngineMemory
from costmodels.strategy import StepShape
from costmodels.workload import Workload


def least_memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    """Returns of `memory` what is held at rest, and in the update the secondary shards of what is trained.

    All that changes with gradients and with what is gathered is left out: following that takes most of the time.

    Args:
        workload: The traced step.
        assignment: A strategy that DeepSpeed has, for each class of blocks; what is recomputed does not count.
        shape: As for `memory`, under the settings that the planner chooses.
    """
    plain = tuple(replace(strategy, recompute="none") for strategy in assignment)
    counted = replace(shape, micro_batch_size=1, num_micro_batches=min(2, shape.num_micro_batches))
    return _least_memory(workload, plain, counted)


@lru_cache(maxsize=128)
def _least_memory(workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
    sizes = Sizes(workload, choose_knobs(workload, assignment, shape), shape)
    in_update = Components()
    if sizes.knobs.stage == 3:
        gathered = Gathered(sizes, assignment)
        in_update = Components(gathered_parameters=gathered.secondary_bytes(gathered.indices(trainable=True)))
    return EngineMemory(at_rest=at_rest(sizes, assignment), init_peak_bytes=0, during_update=in_update)
