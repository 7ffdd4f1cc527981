"""Answers for one given strategy: its best micro-batch and recomputation, and what they would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from costmodels.deepspeed.engine import DEEPSPEED, DeepSpeed
from costmodels.degrees import why_illegal
from costmodels.engine import Engine
from costmodels.fsdp import FSDP
from costmodels.strategy import Strategy
from planner.choose.assemble import assemble
from planner.choose.candidate import Candidate
from planner.choose.compete import best, candidate, table_of
from planner.choose.ds_config import ds_config
from planner.choose.fsdp_config import fsdp_config
from planner.choose.nearest import nearest_text
from planner.choose.own_script import own_script
from planner.choose.play import play
from planner.choose.setting import Setting
from planner.choose.systems import name_of, systems
from planner.cost_table import CostTable
from planner.errors import InputError
from planner.plan import Plan, SolverReport
from planner.read.given_config import GivenConfig


def fixed_plan(asked: Setting, strategy: Strategy, given: GivenConfig | None = None) -> Plan:
    """Returns the plan of a given strategy; a warning says so where it does not fit.

    Args:
        asked: Model, machine and job.
        strategy: The same for all classes of blocks.
        given: A user's DeepSpeed configuration, whose settings count; None: whichever engine has the strategy.

    Raises:
        InputError: Degrees that are no point of the machine's search space, or that the asked engine does not have.
    """
    if given is None and asked.job.offload == "optimizer":
        strategy = replace(strategy, offload="optimizer")
    check_legal(asked, strategy)
    engine = engine_of(asked, strategy) if given is None else _given_engine(asked, strategy, given)
    return plan_of_table(asked, engine, strategy, table_of(asked, engine, (strategy,)), given)


def check_legal(asked: Setting, strategy: Strategy) -> None:
    """Checks that a strategy is a point of the machine's search space.

    Raises:
        InputError: It is none; the text has the rule and the nearest points.
    """
    level_sizes = asked.machine.level_sizes
    reason = why_illegal(strategy, level_sizes)
    if reason is not None:
        raise InputError(f"{reason}. The nearest points are {nearest_text(strategy, level_sizes)}")


def plan_of_table(
    asked: Setting, engine: Engine, strategy: Strategy, table: CostTable, given: GivenConfig | None = None
) -> Plan:
    """Returns the plan of a given strategy from the table of its costs."""
    solution = best(table)
    name = name_of(strategy, systems(asked.machine.level_sizes, asked.machine.ranks_per_node))
    chosen = candidate(asked, engine, name, table, solution)
    report = _report(chosen, solution.wall_s, table.num_strategies)
    warnings = () if given is None else (*given.warnings, *own_script(asked, engine, given, chosen))
    timeline = play(asked.workload, engine, asked.machine, chosen.assignment, chosen.shape)
    return assemble(asked, chosen, report, (), _config(asked, engine, chosen), warnings, timeline)


def engine_of(asked: Setting, strategy: Strategy) -> Engine:
    """Returns the engine that has a strategy: DeepSpeed where it has it, unless the job asks for another.

    Raises:
        InputError: No engine has it, or the asked one has not.
    """
    assignment = (strategy,) * asked.workload.num_classes
    refusal = DEEPSPEED.refusal(asked.workload, assignment, asked.shapes[0])
    if refusal is None and asked.job.engine != "fsdp":
        return DEEPSPEED
    if asked.job.engine == "deepspeed":
        raise InputError(str(refusal))
    other = FSDP.refusal(asked.workload, assignment, asked.shapes[0])
    if other is not None:
        raise InputError(f"no engine has this strategy. deepspeed: {refusal or 'not asked'}; fsdp: {other}")
    return FSDP


def _given_engine(asked: Setting, strategy: Strategy, given: GivenConfig) -> Engine:
    if asked.job.engine == "fsdp":
        raise InputError("a DeepSpeed config runs on the engine deepspeed: leave --engine away")
    engine = DeepSpeed(given.knobs)
    refusal = engine.refusal(asked.workload, (strategy,) * asked.workload.num_classes, asked.shapes[0])
    if refusal is not None:
        raise InputError(refusal)
    return engine


def _config(asked: Setting, engine: Engine, chosen: Candidate) -> dict[str, Any]:
    if not isinstance(engine, DeepSpeed):
        return fsdp_config(chosen.shape)
    knobs = engine.knobs(asked.workload, chosen.assignment, chosen.shape)
    return ds_config(asked.workload, chosen.assignment, chosen.shape, knobs)


def _report(chosen: Candidate, wall_s: float, num_strategies: int) -> SolverReport:
    step_s = chosen.predicted.step_s
    return SolverReport(
        status="FIXED", objective_s=step_s, bound_s=step_s, gap=0.0, num_strategies=num_strategies, wall_s=wall_s
    )
