"""Rebuilds what the figures of a plan were computed from, so that each can be shown with its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from costmodels.assign import assign
from costmodels.deepspeed.engine import DEEPSPEED, DeepSpeed
from costmodels.engine import Assignment, Engine
from costmodels.fsdp import FSDP
from costmodels.strategy import StepShape
from costmodels.workload import Workload
from planner.choose.candidate import strategy_of
from planner.errors import InputError
from planner.evaluate import evaluate
from planner.machine import Machine
from planner.model_graph import ModelGraph
from planner.plan import Plan
from planner.read.read_ds_config import understand


@dataclass(frozen=True, slots=True)
class Retraced:
    """The arguments of the cost model, of which a plan's figures are the answer."""

    workload: Workload
    """With a class of its own for each set of equal blocks that have a strategy of their own."""
    assignment: Assignment
    shape: StepShape
    engine: Engine


def retrace(plan: Plan, graph: ModelGraph, machine: Machine) -> Retraced | None:
    """Returns what the cost model was asked; None where this version predicts something else for the plan.

    Args:
        plan: What `plan` or `estimate` returned.
        graph: The model that it was planned from.
        machine: The one that it was planned for, in the plan's precision.
    """
    by_name = {name: strategy_of(planned) for planned in plan.strategies for name in planned.blocks}
    if any(block.name not in by_name for block in graph.workload.blocks):
        return None
    strategies = {index: by_name[block.name] for index, block in enumerate(graph.workload.blocks)}
    workload, assignment = assign(graph.workload, strategies)
    # The simulated step is of the timeline, not of these formulas.
    predicted = plan.predicted.model_copy(update={"simulated_step_s": None})
    job, budget_bytes = plan.job, plan.predicted.memory.budget_bytes
    shape = StepShape(
        plan.hardware.world_size,
        job.micro_batch_size,
        job.num_micro_batches,
        job.precision,
        job.optimizer,
        plan.hardware.device_kind,
        ranks_per_node=machine.ranks_per_node,
        level_sizes=machine.level_sizes,
    )
    for engine in _engines(plan):
        if engine.refusal(workload, assignment, shape) is None:
            again = evaluate(workload, engine, machine, assignment, shape, budget_bytes, job.sequence_length)
            if again == predicted:
                return Retraced(workload, assignment, shape, engine)
    return None


def _engines(plan: Plan) -> Iterator[Engine]:
    """Yields the plan's engine with the settings that the planner chooses, then with those of its configuration."""
    if plan.engine == FSDP.name:
        yield FSDP
        return
    yield DEEPSPEED
    try:
        yield DeepSpeed(understand(plan.ds_config).knobs)
    except InputError:
        return  # a configuration that this version does not follow predicts nothing
