"""A strategy with its step and what was predicted for it: what alternatives and refusals are made of."""

from __future__ import annotations

from dataclasses import dataclass

from costmodels.engine import Assignment
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload
from planner.plan import Alternative, PlannedStrategy, Predicted


@dataclass(frozen=True, slots=True)
class Candidate:
    """One strategy at its best micro-batch and recomputation."""

    name: str
    engine: str
    workload: Workload
    """The traced step, with a class of its own for each set of equal blocks that have a strategy of their own."""
    assignment: Assignment
    shape: StepShape
    predicted: Predicted

    @property
    def fits(self) -> bool:
        """Whether its peak is within the budget."""
        return self.predicted.memory.peak_bytes <= self.predicted.memory.budget_bytes


def planned_strategies(workload: Workload, assignment: Assignment) -> tuple[PlannedStrategy, ...]:
    """Returns one entry per distinct strategy, in order of first use, with the blocks that have it."""
    blocks: dict[PlannedStrategy, list[str]] = {}
    for block in workload.blocks:
        strategy = assignment[block.block_class]
        key = PlannedStrategy(
            blocks=(),
            param_degree=strategy.param_degree,
            secondary_degree=strategy.secondary_degree,
            grad_degree=strategy.grad_degree,
            optim_degree=strategy.optim_degree,
            recompute=strategy.recompute if block.recomputable else "none",
            quantized_weights=strategy.quantized_weights,
            quantized_gradients=strategy.quantized_gradients,
            offload=strategy.offload,
            hierarchical=strategy.hierarchical,
        )
        blocks.setdefault(key, []).append(block.name)
    return tuple(key.model_copy(update={"blocks": tuple(names)}) for key, names in blocks.items())


def strategy_of(planned: PlannedStrategy) -> Strategy:
    """Returns the strategy of a plan's entry."""
    return Strategy(
        param_degree=planned.param_degree,
        secondary_degree=planned.secondary_degree,
        grad_degree=planned.grad_degree,
        optim_degree=planned.optim_degree,
        recompute=planned.recompute,
        quantized_weights=planned.quantized_weights,
        quantized_gradients=planned.quantized_gradients,
        offload=planned.offload,
        hierarchical=planned.hierarchical,
    )


def as_alternative(candidate: Candidate, verdict: str) -> Alternative:
    """Returns a candidate as a plan lists it."""
    return Alternative(
        name=candidate.name,
        engine=candidate.engine,
        strategies=planned_strategies(candidate.workload, candidate.assignment),
        micro_batch_size=candidate.shape.micro_batch_size,
        step_s=candidate.predicted.step_s,
        peak_bytes=candidate.predicted.memory.peak_bytes,
        verdict=verdict,
    )
