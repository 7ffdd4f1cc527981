"""Estimates, solves and evaluates: from a question and strategies to the best candidate among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.engine import Engine
from costmodels.fsdp import FSDP
from costmodels.strategy import Strategy
from planner.choices import HasRoom, always
from planner.choose.candidate import Candidate
from planner.choose.setting import Setting
from planner.choose.systems import System
from planner.choose.variants import has_host_room
from planner.cost_table import CostTable
from planner.estimate import estimate
from planner.estimate_smallest import estimate_smallest
from planner.evaluate import evaluate
from planner.solve import FASTEST, SMALLEST, Objectives, Solution, solve
from planner.try_all import MOST_TRIED, try_all


def table_of(
    asked: Setting,
    engine: Engine,
    strategies: Iterable[Strategy],
    within_bytes: int | None = None,
    has_room: HasRoom = always,
) -> CostTable:
    """Returns the costs of these strategies in this setting, of those choices that need no more memory than is said."""
    job, budget_bytes = asked.job, asked.budget_bytes
    fixed = (asked.workload, engine, asked.machine, strategies, asked.shapes, job.recompute, budget_bytes)
    return estimate(*fixed, within_bytes, has_room)


def smallest_table_of(
    asked: Setting, engine: Engine, strategies: Sequence[Strategy], has_room: HasRoom = always
) -> CostTable:
    """Returns the costs of a few choices, the smallest of all among them."""
    job, budget_bytes = asked.job, asked.budget_bytes
    fixed = (asked.workload, engine, asked.machine, strategies, asked.shapes, job.recompute, budget_bytes)
    return estimate_smallest(*fixed, has_room)


ENGINES: dict[str, Engine] = {"deepspeed": DEEPSPEED, "fsdp": FSDP}


def compete(asked: Setting, system: System, table: CostTable | None = None) -> Candidate:
    """Returns a published system at its best micro-batch and recomputation.

    Args:
        asked: Model, machine and job.
        system: The system.
        table: The costs of what fits, which may have the system's already.
    """
    engine, strategies = ENGINES[system.engine], (system.strategy,)
    in_table = table is not None and table.engine == system.engine and table.has(system.strategy)
    has_room = partial(has_host_room, asked) if in_table else always
    rows = rows_of(system, table) if table is not None and in_table else None
    if rows is None:
        rows = table_of(asked, engine, strategies, asked.budget_bytes)
    found = try_all(rows)
    if found is None:
        rows = smallest_table_of(asked, engine, strategies, has_room)
        found = smallest(rows)
    return candidate(asked, engine, system.name, rows, found)


def able(asked: Setting, named: Iterable[System]) -> tuple[System, ...]:
    """Returns the published systems whose engine can train this model by them, in their order."""
    num_classes = asked.workload.num_classes
    return tuple(
        each
        for each in named
        if ENGINES[each.engine].refusal(asked.workload, (each.strategy,) * num_classes, asked.shapes[0]) is None
    )


def rows_of(system: System, table: CostTable) -> CostTable:
    """Returns the part of a table that is about a published system."""
    return table.where(lambda option: option.strategy == system.strategy)


def best(table: CostTable) -> Solution:
    """Returns the fastest choice that fits, or the smallest one where none does."""
    return _solved(table, FASTEST, table.budget_bytes) or smallest(table)


def smallest(table: CostTable) -> Solution:
    """Returns the choice that needs the least memory, whatever the budget."""
    solution = _solved(table, SMALLEST, table.enough_bytes)
    if solution is None:
        raise AssertionError("every choice fits in the greatest memory of all")
    return solution


def _solved(table: CostTable, objectives: Objectives, budget_bytes: int) -> Solution | None:
    is_small = table.num_strategies <= MOST_TRIED
    return try_all(table, objectives, budget_bytes) if is_small else solve(table, objectives, budget_bytes)


def candidate(asked: Setting, engine: Engine, name: str, table: CostTable, solution: Solution) -> Candidate:
    """Returns a solution with its exact prediction."""
    assignment = table.assignment(solution.option.strategy, solution.recomputed)
    shape = solution.option.shape
    predicted = evaluate(
        asked.workload, engine, asked.machine, assignment, shape, asked.budget_bytes, asked.graph.sequence_length
    )
    return Candidate(name, engine.name, asked.workload, assignment, shape, predicted)
