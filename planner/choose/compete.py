"""Estimates, solves and evaluates: from a question and strategies to the best candidate among them."""

from __future__ import annotations

from collections.abc import Iterable

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.engine import Engine
from costmodels.fsdp import FSDP
from costmodels.strategy import Strategy
from planner.choose.candidate import Candidate
from planner.choose.setting import Setting
from planner.choose.systems import System
from planner.cost_table import CostTable
from planner.estimate import estimate
from planner.evaluate import evaluate
from planner.solve import SMALLEST, Solution, solve


def table_of(asked: Setting, engine: Engine, strategies: Iterable[Strategy]) -> CostTable:
    """Returns the costs of these strategies in this setting."""
    return estimate(
        asked.workload, engine, asked.machine, strategies, asked.shapes, asked.job.recompute, asked.budget_bytes
    )


ENGINES: dict[str, Engine] = {"deepspeed": DEEPSPEED, "fsdp": FSDP}


def compete(asked: Setting, system: System, table: CostTable | None = None) -> Candidate:
    """Returns a published system at its best micro-batch and recomputation; a table may have its costs already."""
    engine = ENGINES[system.engine]
    rows = rows_of(system, table) if table is not None and table.engine == system.engine else None
    if rows is None or not rows.options:
        rows = table_of(asked, engine, (system.strategy,))
    return candidate(asked, engine, system.name, rows, best(rows))


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
    return solve(table) or smallest(table)


def smallest(table: CostTable) -> Solution:
    """Returns the choice that needs the least memory, whatever the budget."""
    solution = solve(table, SMALLEST, table.enough_bytes)
    if solution is None:
        raise AssertionError("every choice fits in the greatest memory of all")
    return solution


def candidate(asked: Setting, engine: Engine, name: str, table: CostTable, solution: Solution) -> Candidate:
    """Returns a solution with its exact prediction."""
    assignment = table.assignment(solution.option.strategy, solution.recomputed)
    shape = solution.option.shape
    predicted = evaluate(
        asked.workload, engine, asked.machine, assignment, shape, asked.budget_bytes, asked.graph.sequence_length
    )
    return Candidate(name, engine.name, asked.workload, assignment, shape, predicted)
