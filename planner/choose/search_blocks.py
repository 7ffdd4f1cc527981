"""Searches the space of the fsdp engine, in which each class of blocks has strategies of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from costmodels.assign import assign
from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.degrees import strategies
from costmodels.fsdp import FSDP
from costmodels.strategy import Recompute, Strategy
from planner.block_table import BlockTable, strategies_of
from planner.choose.alike import Settled, settle
from planner.choose.alternatives import alternatives
from planner.choose.assemble import assemble
from planner.choose.candidate import Candidate
from planner.choose.compete import able, candidate, compete, smallest, smallest_table_of
from planner.choose.fsdp_config import fsdp_config
from planner.choose.infeasible import at_smallest_batch, infeasible
from planner.choose.level_by_level import level_by_level
from planner.choose.near_best import with_played
from planner.choose.other_engine import with_other_engine
from planner.choose.play import play
from planner.choose.setting import Setting
from planner.choose.space import space
from planner.choose.suggestions import Smallest
from planner.choose.systems import name_of, systems
from planner.errors import InputError, UnsolvedError
from planner.estimate_blocks import estimate_blocks
from planner.evaluate import evaluate
from planner.lossy_choice import Lossy
from planner.plan import Infeasible, Plan, SolverReport
from planner.simulate.timeline import Timeline
from planner.solve import solve
from planner.solve_blocks import BlockSolution, solve_blocks

_RECOMPUTES: dict[Recompute | str, tuple[bool, ...]] = {"auto": (False, True), "none": (False,), "full": (True,)}


_LOSSY = (Lossy(), Lossy(weights=True), Lossy(gradients=True), Lossy(weights=True, gradients=True))
"""What may be quantized, the least lossy first: of equal choices that of the first table is taken."""

NEAR = 0.005
"""Near enough to the fastest for what is only set beside a plan: proving the rest takes most of the time."""


MOST_RANKS = 1024
"""A suggestion is looked at in many sizes of the machine, and beyond this one the best of all classes takes seconds."""


@dataclass(frozen=True, slots=True)
class FoundBlocks:
    """The fsdp engine's choice, and how it was found."""

    tables: tuple[BlockTable, ...]
    """The costs, one for each micro-batch that can fit."""
    solution: BlockSolution
    settled: Settled
    num_strategies: int
    """Of all classes and micro-batches."""
    timeline: Timeline
    seconds: float

    @property
    def chosen(self) -> Candidate:
        """What is taken."""
        return self.settled.candidate

    @property
    def played(self) -> Candidate:
        """What is taken, with what its step takes when it is played through."""
        return with_played(self.chosen, self.timeline.step_s)


def search_blocks(asked: Setting) -> Plan | Infeasible:
    """Returns the fastest plan of the fsdp engine that fits, or why nothing does.

    Raises:
        InputError: The engine can train nothing here, such as a model without trained parameters.
        UnsolvedError: The solver's limit came before any choice that fits was found.
    """
    found = find_blocks(asked)
    rival = _best_of_deepspeed(asked)
    if found is None:
        return with_other_engine(infeasible(asked, least_of_fsdp(asked)), rival)
    return plan_of_blocks(asked, found, () if rival is None else (rival,))


def find_blocks(asked: Setting, gap: float = 0.0, near: FoundBlocks | None = None) -> FoundBlocks | None:
    """Returns the fastest choice that fits, or one that is within the gap of it; None where nothing fits.

    Args:
        asked: Model, machine and job.
        gap: A part of the best.
        near: What was found with a gap, of the same question.

    Raises:
        InputError: As for `search_blocks`.
        UnsolvedError: As for `search_blocks`.
    """
    started_s = time.perf_counter()
    tables = block_tables(asked, asked.budget_bytes) if near is None else near.tables
    known = None if near is None else near.solution
    solution = solve_blocks(tables, asked.budget_bytes, time_limit_s=asked.job.solve_time_limit_s, gap=gap, known=known)
    if solution is None:
        return None
    chosen = block_candidate(asked, solution)
    if solution.step_ns != round(chosen.predicted.step_s * 1e9):
        raise AssertionError("the table and the prediction are the same functions")
    settled = settle(asked, chosen) if gap == 0 else Settled(chosen, "bound")
    chosen = level_by_level(asked, settled.candidate)
    num_strategies = sum(len(group.params) * len(group.grads) for table in tables for group in table.groups)
    settled = replace(settled, candidate=chosen)
    timeline = play(chosen.workload, FSDP, asked.machine, chosen.assignment, chosen.shape)
    return FoundBlocks(tables, solution, settled, num_strategies, timeline, time.perf_counter() - started_s)


def plan_of_blocks(asked: Setting, found: FoundBlocks, rivals: tuple[Candidate, ...]) -> Plan:
    """Returns the plan of a choice, with the published systems and other rivals beside it."""
    started_s = time.perf_counter()
    solution, chosen = found.solution, found.played
    named = systems(asked.machine.level_sizes, asked.machine.ranks_per_node)
    set_beside = alternatives(chosen, (*(compete(asked, system) for system in able(asked, named)), *rivals))
    report = SolverReport(
        status=solution.status,
        objective_s=solution.step_ns / 1e9,
        bound_s=solution.bound / 1e9,
        gap=(solution.step_ns - solution.bound) / max(solution.step_ns, 1),
        num_strategies=found.num_strategies,
        wall_s=found.seconds + time.perf_counter() - started_s,
        decided_by="levels" if any(each.hierarchical for each in chosen.assignment) else found.settled.by,
    )
    configured = fsdp_config(chosen.shape)
    return assemble(asked, chosen, report, set_beside, configured, found.settled.warnings, found.timeline)


def best_of_blocks(asked: Setting) -> Candidate | None:
    """Returns a choice of the fsdp engine that fits and is within `NEAR` of its fastest; None where none was found."""
    if refusal_of_fsdp(asked) is not None:
        return None
    try:
        found = find_blocks(asked, NEAR)
    except UnsolvedError:
        return None  # It is a rival to a plan: without one in time there is none to set beside.
    if found is None:
        return None
    return replace(found.played, name=f"best of fsdp: {found.chosen.name.removeprefix('strategies ')}")


def _best_of_deepspeed(asked: Setting) -> Candidate | None:
    """Returns DeepSpeed's fastest choice that fits, by the bound alone; None where it has none, or none in time."""
    as_deepspeed = replace(asked, job=asked.job.model_copy(update={"engine": "deepspeed"}))
    try:
        table = space(as_deepspeed)
        solution = solve(table, time_limit_s=asked.job.solve_time_limit_s)
    except (InputError, UnsolvedError):
        return None
    if solution is None:
        return None
    name = name_of(solution.option.strategy, systems(asked.machine.level_sizes, asked.machine.ranks_per_node))
    return candidate(as_deepspeed, DEEPSPEED, f"best of deepspeed: {name}", table, solution)


def block_tables(asked: Setting, budget_bytes: int | None = None) -> tuple[BlockTable, ...]:
    """Returns the costs of every per-class choice, one table for each micro-batch that can fit in the bytes given.

    Raises:
        InputError: The engine has no strategy for this model or optimizer.
    """
    refusal = refusal_of_fsdp(asked)
    if refusal is not None:
        raise InputError(f"the fsdp engine cannot train this: {refusal}")
    may_recompute = _RECOMPUTES[asked.job.recompute]
    return tuple(
        table
        for lossy in (_LOSSY if asked.job.allow_lossy else _LOSSY[:1])
        for table in estimate_blocks(asked.workload, asked.machine, asked.shapes, may_recompute, budget_bytes, lossy)
    )


def block_candidate(asked: Setting, solution: BlockSolution) -> Candidate:
    """Returns a solution with its exact prediction."""
    workload, assignment = assign(asked.workload, strategies_of(solution.table, solution.choice))
    shape = solution.table.shape
    predicted = evaluate(
        workload, FSDP, asked.machine, assignment, shape, asked.budget_bytes, asked.graph.sequence_length
    )
    distinct = {replace(strategy, recompute="none") for strategy in assignment}
    name = "strategies by class of blocks"
    if len(distinct) == 1:
        name = name_of(assignment[0], systems(asked.machine.level_sizes, asked.machine.ranks_per_node))
    return Candidate(name, FSDP.name, workload, assignment, shape, predicted)


def refusal_of_fsdp(asked: Setting) -> str | None:
    """Returns why the engine has no strategy at all for this, or None: all are refused for the same reason."""
    least = strategies(asked.machine.level_sizes)[0]
    if asked.job.offload == "optimizer":
        least = replace(least, offload="optimizer")
    return FSDP.refusal(asked.workload, (least,) * asked.workload.num_classes, asked.shapes[0])


def least_of_fsdp(question: Setting) -> Smallest:
    """Returns what finds the choice of least memory in a setting: what is nearest to fitting.

    Args:
        question: The setting that has no answer; in those that are only suggested, and have more than `MOST_RANKS`,
            strategies are the same for all blocks.
    """

    def least(asked: Setting) -> Candidate:
        at_least = at_smallest_batch(asked)
        if asked is not question and asked.machine.world_size > MOST_RANKS:
            return _least_of_all_alike(at_least)
        solution = solve_blocks(block_tables(at_least), None, ("memory", "time"))
        if solution is None:
            raise AssertionError("every choice fits in the greatest memory of all")
        return block_candidate(at_least, solution)

    return least


def _least_of_all_alike(asked: Setting) -> Candidate:
    world_size = asked.machine.world_size
    few = [Strategy(p, p, g, world_size) for p in (1, world_size) for g in (1, world_size)]
    table = smallest_table_of(asked, FSDP, few)
    return candidate(asked, FSDP, "", table, smallest(table))
