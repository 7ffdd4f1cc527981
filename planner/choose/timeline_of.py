"""Plays a finished plan through: the timeline of what it chose, from the model and the machine that it is for."""

from __future__ import annotations

from costmodels.assign import assign
from costmodels.deepspeed.engine import DEEPSPEED, DeepSpeed
from costmodels.engine import Assignment, Engine
from costmodels.fsdp import FSDP
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload
from planner.choose.ds_config import ds_config
from planner.choose.play import play
from planner.machine import Machine
from planner.model_graph import ModelGraph
from planner.plan import Plan, PlannedStrategy
from planner.read.read_ds_config import understand
from planner.simulate.timeline import Timeline


def timeline_of(plan: Plan, graph: ModelGraph, machine: Machine) -> Timeline:
    """Returns the timeline of a plan's step; its events name blocks by their index in the graph's workload.

    Args:
        plan: Of `plan` or `estimate`.
        graph: The model that it was planned from.
        machine: The one that it was planned for, in the plan's precision.
    """
    job, hardware = plan.job, plan.hardware
    shape = StepShape(
        hardware.world_size,
        job.micro_batch_size,
        job.num_micro_batches,
        job.precision,
        job.optimizer,
        hardware.device_kind,
        hardware.ranks_per_node,
        machine.level_sizes,
    )
    by_name = {name: strategy for strategy in plan.strategies for name in strategy.blocks}
    chosen = {number: _strategy(by_name[block.name]) for number, block in enumerate(graph.workload.blocks)}
    workload, assignment = assign(graph.workload, chosen)
    return play(workload, _engine(plan, workload, assignment, shape), machine, assignment, shape)


def _engine(plan: Plan, workload: Workload, assignment: Assignment, shape: StepShape) -> Engine:
    """Returns the plan's engine; DeepSpeed with a user's settings, where these are not what the planner chooses."""
    if plan.engine == "fsdp":
        return FSDP
    if plan.ds_config == ds_config(workload, assignment, shape):
        return DEEPSPEED
    return DeepSpeed(understand(plan.ds_config).knobs)


def _strategy(planned: PlannedStrategy) -> Strategy:
    fields = planned.model_dump(exclude={"blocks"})
    return Strategy(**fields)
