"""DeepSpeed as an engine of the planner: which strategies it has, what it sends, what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from costmodels.deepspeed.knobs import Knobs, choose_knobs
from costmodels.deepspeed.least_memory import least_memory
from costmodels.deepspeed.memory import memory
from costmodels.deepspeed.refusal import refusal, refusal_of_knobs
from costmodels.deepspeed.schedule import schedule
from costmodels.deepspeed.traffic import traffic
from costmodels.engine import Assignment, EngineMemory, Message
from costmodels.schedule import Schedule
from costmodels.strategy import StepShape
from costmodels.workload import Workload


@dataclass(frozen=True, slots=True)
class DeepSpeed:
    """The cost model of DeepSpeed 0.19.8."""

    given: Knobs | None = None
    """Settings of a configuration that a user brings; None: those that the planner chooses for each strategy."""

    @property
    def name(self) -> str:
        """The engine's name in a plan."""
        return "deepspeed"

    def knobs(self, workload: Workload, assignment: Assignment, shape: StepShape) -> Knobs:
        """Returns the settings under which the assignment runs."""
        return self.given or choose_knobs(workload, assignment, shape)

    def refusal(self, workload: Workload, assignment: Assignment, shape: StepShape) -> str | None:
        """Returns why DeepSpeed cannot run the assignment, or None when it can."""
        reason = refusal(workload, assignment, shape)
        if reason is None and self.given is not None:
            return refusal_of_knobs(workload, self.given)
        return reason

    def traffic(self, workload: Workload, assignment: Assignment, shape: StepShape) -> tuple[Message, ...]:
        """Returns every message that one rank takes part in during one steady optimizer step, sorted."""
        return traffic(workload, assignment, shape, self.knobs(workload, assignment, shape))

    def schedule(self, workload: Workload, assignment: Assignment, shape: StepShape) -> Schedule:
        """Returns the same messages in order, among what is computed."""
        return schedule(workload, assignment, shape, self.knobs(workload, assignment, shape))

    def memory(self, workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
        """Returns what DeepSpeed holds beside the activations."""
        return memory(workload, assignment, shape, self.knobs(workload, assignment, shape))

    def least_memory(self, workload: Workload, assignment: Assignment, shape: StepShape) -> EngineMemory:
        """Returns of it what is quick to count; of a user's own settings all of it."""
        if self.given is not None:
            return memory(workload, assignment, shape, self.given)
        return least_memory(workload, assignment, shape)


DEEPSPEED = DeepSpeed()
"""With the settings that the planner chooses."""
