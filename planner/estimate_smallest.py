"""Fills a cost table in which the choice of least memory is, with few others: all that is asked where nothing fits."""

from __future__ import annotations

from collections.abc import Sequence

from costmodels.engine import Engine
from costmodels.least_peak import least_peak_bytes
from costmodels.memory import moments_bytes
from costmodels.strategy import Recompute, StepShape, Strategy
from costmodels.workload import Workload
from planner.choices import HasRoom, always, assignments, may_recompute, no_choices
from planner.cost_table import CostTable
from planner.estimate import estimate
from planner.machine import Machine


def estimate_smallest(
    workload: Workload,
    engine: Engine,
    machine: Machine,
    strategies: Sequence[Strategy],
    shapes: tuple[StepShape, ...],
    recompute: Recompute | str,
    budget_bytes: int,
    has_room: HasRoom = always,
) -> CostTable:
    """Returns the costs of all choices that need no more memory than one that surely needs little.

    The smallest choice is among them, and every other one that needs as little.

    Args:
        workload: The traced step.
        engine: Whose traffic and memory.
        machine: Links and devices.
        strategies: As for `estimate`, like all that follows.
        shapes: Micro-batches.
        recompute: `auto`, `none` or `full`.
        budget_bytes: Device memory that a step may use.
        has_room: Whether a strategy is looked at in a shape at all.
    """
    table = no_choices(workload, engine, budget_bytes)
    values = may_recompute(table, recompute)
    every = [
        (assignment, shape)
        for strategy in strategies
        for shape in shapes
        if has_room(strategy, shape)
        for _, assignment in assignments(workload, engine, table, strategy, shape, values)
    ]
    if not every:
        return table
    least = [least_peak_bytes(workload, engine.least_memory(workload, *each), *each) for each in every]
    likely = every[least.index(min(least))]
    reached_bytes = int(moments_bytes(workload, engine.memory(workload, *likely), *likely).max())
    return estimate(workload, engine, machine, strategies, shapes, recompute, budget_bytes, reached_bytes, has_room)
