"""When DeepSpeed's stage 3 gathers parameters: its coordinator, run on numbers.

The coordinator records the order of modules in the first micro-batch; from the second on it prefetches along that
order, and keeps what is used again within the reuse distance. What it sends depends on both, on what the prefetcher
has already passed by, and on what an earlier micro-batch left gathered, so that it is simulated and not a formula.
"""

from __future__ import annotations

from functools import lru_cache

from costmodels.deepspeed.coordinator import Coordinator
from costmodels.deepspeed.coordinator_state import Question, State, persistent_parameters, question
from costmodels.deepspeed.hooks import Hook
from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.micro_batch import Gather, MicroBatch
from costmodels.workload import Workload

__all__ = ["Gather", "MicroBatch", "gathers", "persistent_parameters"]

_SIMULATED_STEPS = 3
"""The first records, the second may still meet what the first left; the third repeats."""
_SIMULATED_MICRO_BATCHES = 3
"""More than three differ from the second by nothing."""


def gathers(
    workload: Workload, order: tuple[Hook, ...], knobs: Knobs, num_micro_batches: int
) -> tuple[MicroBatch, ...]:
    """Returns every micro-batch of a steady optimizer step."""
    simulated = min(num_micro_batches, _SIMULATED_MICRO_BATCHES)
    step = _simulated(workload, order, _gathering(knobs), simulated)
    return step[:1] + step[1:2] * (num_micro_batches - simulated) + step[1:]


def _gathering(knobs: Knobs) -> Knobs:
    """Returns the settings that the coordinator reads, so that all that agree in these share one simulation.

    Which ranks share a secondary partition changes no order: what counts is whether there is one.
    """
    return Knobs(
        stage=3,
        overlap_comm=True,
        prefetch_bucket_size=knobs.prefetch_bucket_size,
        param_persistence_threshold=knobs.param_persistence_threshold,
        model_persistence_threshold=knobs.model_persistence_threshold,
        max_live_parameters=knobs.max_live_parameters,
        max_reuse_distance=knobs.max_reuse_distance,
        hpz_partition_size=min(2, knobs.hpz_partition_size),
    )


@lru_cache(maxsize=64)
def _simulated(
    workload: Workload, order: tuple[Hook, ...], knobs: Knobs, num_micro_batches: int
) -> tuple[MicroBatch, ...]:
    """Simulates once for traffic, memory and every micro-batch size: the numbers do not depend on it."""
    asked = _question(workload, order, knobs)
    state = asked.recorded if num_micro_batches == 1 else asked.first
    step: list[MicroBatch] = []
    for _ in range(_SIMULATED_STEPS):
        step = []
        for _ in range(num_micro_batches):
            micro_batch, state = _micro_batch(asked, state)
            step.append(micro_batch)
        state = asked.updated(state)
    return tuple(step)


@lru_cache(maxsize=32)
def _question(workload: Workload, order: tuple[Hook, ...], knobs: Knobs) -> Question:
    return question(workload, order, knobs)


def _micro_batch(asked: Question, state: State) -> tuple[MicroBatch, State]:
    """Runs one micro-batch from a state; few states differ, whatever the number of micro-batches."""
    if state not in asked.known:
        coordinator = Coordinator(asked, state)
        found = coordinator.micro_batch(), coordinator.state()
        # Whoever begins alike, with the releases that this one has cached, asks for the same ones at the same steps.
        asked.known[state] = asked.known[state._replace(released=found[1].released)] = found
    return asked.known[state]
