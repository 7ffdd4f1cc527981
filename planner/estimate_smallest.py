"""Fills a cost table with the choices of least memory alone: all that is asked where nothing fits."""

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
    """Returns the costs of the choices that need the least memory; of all others only their number.

    In ascending order of what they surely need, memory is counted until the rest surely needs more.

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
    least = [least_peak_bytes(workload, engine.least_memory(workload, *each), *each) for each in every]
    within_bytes: int | None = None
    for number in sorted(range(len(every)), key=least.__getitem__):
        if within_bytes is not None and least[number] > within_bytes:
            break
        held = engine.memory(workload, *every[number])
        peak_bytes = int(moments_bytes(workload, held, *every[number]).max())
        within_bytes = peak_bytes if within_bytes is None else min(within_bytes, peak_bytes)
    return estimate(workload, engine, machine, strategies, shapes, recompute, budget_bytes, within_bytes, has_room)
