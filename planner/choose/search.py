"""Searches the whole space of DeepSpeed, and sets the published systems beside the choice."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.deepspeed.knobs import Knobs
from planner.choose.alternatives import alternatives
from planner.choose.assemble import assemble
from planner.choose.candidate import Candidate
from planner.choose.compete import able, candidate, compete, rows_of, smallest
from planner.choose.ds_config import ds_config
from planner.choose.infeasible import at_smallest_batch, infeasible
from planner.choose.message_sizes import with_sizes
from planner.choose.near_best import Decision, beside, decide
from planner.choose.other_engine import with_other_engine
from planner.choose.play import play
from planner.choose.recompute_fewer import recompute_fewer
from planner.choose.search_blocks import best_of_blocks
from planner.choose.setting import Setting
from planner.choose.space import smallest_space
from planner.choose.systems import System, name_of, systems
from planner.cost_table import CostTable
from planner.plan import Infeasible, Plan, SolverReport
from planner.solve import Solution, solve


@dataclass(frozen=True, slots=True)
class Found:
    """DeepSpeed's choice, and how it was found."""

    table: CostTable
    known: tuple[System, ...]
    """Published systems that could have been chosen in its place."""
    solution: Solution
    decision: Decision
    chosen: Candidate
    knobs: Knobs | None
    """Settings in place of those by rule."""
    seconds: float


def search(asked: Setting, table: CostTable, rivals: tuple[Candidate, ...] = ()) -> Plan | Infeasible:
    """Returns DeepSpeed's fastest plan that fits, or why nothing does.

    Args:
        asked: Model, machine and job.
        table: The costs of the search space.
        rivals: Choices of another engine, to be set beside the plan.

    Raises:
        UnsolvedError: The solver's limit came before any choice that fits was found.
    """
    found = find(asked, table)
    if found is None:
        return with_other_engine(infeasible(asked, least_of_deepspeed), best_of_blocks(asked))
    return plan_of(asked, found, rivals)


def find(asked: Setting, table: CostTable) -> Found | None:
    """Returns the fastest choice of a table that fits, or None; raises as `search` does."""
    started_s = time.perf_counter()
    solution = solve(table, time_limit_s=asked.job.solve_time_limit_s)
    if solution is None:
        return None
    known = _systems(asked, table)
    if solution.status == "FEASIBLE":
        solution = _no_slower_than(known, table, solution)
    decision = decide(asked, DEEPSPEED, table, solution)
    solution = decision.of(solution)
    whole = candidate(asked, DEEPSPEED, name_of(solution.option.strategy, known), table, solution)
    if decision.by == "bound" and solution.objective != round(whole.predicted.step_s * 1e9):
        raise AssertionError("the cost table and the prediction are the same functions")
    chosen = recompute_fewer(asked, DEEPSPEED, whole)
    if chosen is not whole:
        timeline = play(chosen.workload, DEEPSPEED, asked.machine, chosen.assignment, chosen.shape)
        decision = replace(decision, timeline=timeline, by="blocks")
    sized = with_sizes(asked, chosen, decision.timeline)
    knobs = None
    if sized is not None:
        warnings = (*decision.warnings, sized.instead_of(decision.timeline))
        decision = replace(decision, timeline=sized.timeline, by="simulation", warnings=warnings)
        chosen, knobs = sized.candidate, sized.knobs
    return Found(table, known, solution, decision, chosen, knobs, time.perf_counter() - started_s)


def plan_of(asked: Setting, found: Found, rivals: tuple[Candidate, ...]) -> Plan:
    """Returns the plan of a choice, with the published systems and other rivals beside it."""
    started_s = time.perf_counter()
    chosen, decision = found.chosen, found.decision
    others = [
        compete(asked, system, found.table)
        for system in found.known
        if system.strategy != found.solution.option.strategy
    ]
    set_beside = alternatives(*beside(asked, DEEPSPEED, decision, chosen, (*others, *rivals)))
    return assemble(
        asked,
        chosen,
        _report(found.solution, decision, found.seconds + time.perf_counter() - started_s),
        set_beside,
        ds_config(chosen.workload, chosen.assignment, chosen.shape, found.knobs),
        decision.warnings,
        decision.timeline,
    )


def _systems(asked: Setting, table: CostTable) -> tuple[System, ...]:
    """Returns the published systems that the job allows and whose engine can train this model by them.

    Those with offload are there where the table has them: the hosts have room for what they move. Where the job asks
    for offload there are no others.
    """
    named = systems(
        asked.machine.level_sizes, asked.machine.ranks_per_node, allow_lossy=asked.job.allow_lossy, offload=True
    )
    is_asked = asked.job.offload == "optimizer"
    possible = (
        each for each in named if (each.strategy.offload == "none" and not is_asked) or table.has(each.strategy)
    )
    return able(asked, tuple(possible))


def _no_slower_than(known: tuple[System, ...], table: CostTable, found: Solution) -> Solution:
    """Returns what was found, or a published system that fits and is faster: without a proof there may be one."""
    rivals = [solve(rows_of(system, table)) for system in known if system.engine == table.engine]
    best = min((found, *(rival for rival in rivals if rival is not None)), key=lambda each: each.objective)
    return replace(found, option=best.option, recomputed=best.recomputed, objective=best.objective)


def least_of_deepspeed(asked: Setting) -> Candidate:
    """Returns DeepSpeed's strategy that needs the least memory: what is nearest to fitting."""
    at_least = at_smallest_batch(asked)
    table = smallest_space(at_least)
    solution = smallest(table)
    return candidate(at_least, DEEPSPEED, name_of(solution.option.strategy, _systems(asked, table)), table, solution)


def _report(solution: Solution, decision: Decision, wall_s: float) -> SolverReport:
    return SolverReport(
        status=solution.status,
        objective_s=solution.objective / 1e9,
        bound_s=solution.bound / 1e9,
        gap=solution.gap,
        num_strategies=solution.num_strategies,
        wall_s=wall_s,
        decided_by=decision.by,
    )
