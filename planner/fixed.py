"""Answers for one given strategy: its best micro-batch and recomputation, and what they would do."""

from __future__ import annotations

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.degrees import why_illegal
from costmodels.engine import Engine
from costmodels.fsdp import FSDP
from costmodels.strategy import Strategy
from planner.assemble import assemble
from planner.candidate import Candidate
from planner.compete import best, candidate, table_of
from planner.ds_config import ds_config
from planner.errors import InputError
from planner.plan import Plan, SolverReport
from planner.setting import Setting
from planner.systems import name_of, systems


def fixed_plan(asked: Setting, strategy: Strategy) -> Plan:
    """Returns the plan of a given strategy; a warning says so where it does not fit.

    Raises:
        InputError: Degrees that are no point of the machine's search space, or that the asked engine does not have.
    """
    reason = why_illegal(strategy, asked.machine.level_sizes)
    if reason is not None:
        raise InputError(reason)
    engine = _engine(asked, strategy)
    table = table_of(asked, engine, (strategy,))
    solution = best(table)
    name = name_of(strategy, systems(asked.machine.level_sizes, asked.machine.ranks_per_node))
    chosen = candidate(asked, engine, name, table, solution)
    return assemble(asked, chosen, _report(chosen, solution.wall_s, table.num_strategies), (), _config(asked, chosen))


def _engine(asked: Setting, strategy: Strategy) -> Engine:
    if asked.job.engine == "fsdp":
        return FSDP
    assignment = (strategy,) * asked.workload.num_classes
    refusal = DEEPSPEED.refusal(asked.workload, assignment, asked.shapes[0])
    if refusal is None:
        return DEEPSPEED
    if asked.job.engine == "deepspeed":
        raise InputError(refusal)
    other = FSDP.refusal(asked.workload, assignment, asked.shapes[0])
    if other is not None:
        raise InputError(f"no engine runs this strategy. DeepSpeed: {refusal}. fsdp: {other}")
    return FSDP


def _config(asked: Setting, chosen: Candidate) -> dict[str, object]:
    if chosen.engine != DEEPSPEED.name:
        return {}
    return ds_config(asked.workload, chosen.assignment, chosen.shape)


def _report(chosen: Candidate, wall_s: float, num_strategies: int) -> SolverReport:
    step_s = chosen.predicted.step_s
    return SolverReport(
        status="FIXED", objective_s=step_s, bound_s=step_s, gap=0.0, num_strategies=num_strategies, wall_s=wall_s
    )
