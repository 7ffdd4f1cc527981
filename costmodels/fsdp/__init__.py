"""The cost model of the fsdp engine: the ideal schedule, for any nested degrees of parameters, gradients and states."""

from __future__ import annotations

from dataclasses import dataclass

from costmodels.degrees import why_not_nested, why_not_secondary
from costmodels.engine import Assignment, Engine, EngineMemory, Message
from costmodels.fsdp.least_memory import least_memory
from costmodels.fsdp.memory import memory
from costmodels.fsdp.quantized import why_not_quantized
from costmodels.fsdp.schedule import schedule
from costmodels.fsdp.traffic import traffic
from costmodels.schedule import Schedule
from costmodels.states import NUM_MOMENTS
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload

__all__ = ["FSDP"]


@dataclass(frozen=True, slots=True)
class _Fsdp:
    name: str = "fsdp"

    def refusal(self, workload: Workload, assignment: Assignment, shape: StepShape) -> str | None:
        """Returns why the ideal schedule has no words for the assignment, or None."""
        if len(assignment) != workload.num_classes:
            return f"{len(assignment)} strategies for {workload.num_classes} classes of blocks; give one for each"
        if shape.optimizer not in NUM_MOMENTS:
            return f"the states of optimizer {shape.optimizer} are not known; known are {', '.join(NUM_MOMENTS)}"
        reasons = (_refused(strategy, shape) for strategy in assignment)
        return next((reason for reason in reasons if reason), None)

    def traffic(self, workload: Workload, assignment: Assignment, shape: StepShape) -> tuple[Message, ...]:
        """Returns the messages of one rank in one optimizer step."""
        return traffic(workload, assignment, shape)

    def schedule(self, workload: Workload, assignment: Assignment, shape: StepShape) -> Schedule:
        """Returns the same messages in order, among what is computed."""
        return schedule(workload, assignment, shape)

    def memory(self, workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
        """Returns what the fullest rank holds beside activations."""
        return memory(workload, assignment, shape)

    def least_memory(self, workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
        """Returns of it the shards of parameters and optimizer states."""
        return least_memory(workload, assignment, shape)


def _refused(strategy: Strategy, shape: StepShape) -> str | None:
    if strategy.offload != "none":
        return "the fsdp engine keeps optimizer states on the device; offload them with deepspeed"
    nesting = why_not_nested(*strategy.degrees, shape.world_size) or why_not_secondary(strategy)
    return nesting or why_not_quantized(strategy, shape)


FSDP: Engine = _Fsdp()
