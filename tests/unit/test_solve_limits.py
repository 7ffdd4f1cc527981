"""A limit of seconds on the solver: the best found so far with its true gap, or a clear error."""

from __future__ import annotations

import json
import random
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from transformer_graph import SMALL, transformer_graph

import cli
from costmodels.strategy import StepShape, Strategy
from hw_profiles.load import load
from planner import Job, plan
from planner.cost_table import Cost, CostTable, Option
from planner.errors import UnsolvedError
from planner.solve import solve

NUM_OPTIONS, NUM_GROUPS = 400, 12
GIGA = 10**9
ALL = np.array(list(product((0, 1), repeat=NUM_GROUPS)))
"""Every recomputation, a row each."""


@pytest.fixture(scope="module")
def table() -> CostTable:
    """Options with 2^12 recomputations each, all alike: what a group saves is worth nearly what it takes."""
    numbers = random.Random(0)

    def option(number: int) -> Option:
        saved = [numbers.randrange(GIGA // 10, GIGA) for _ in range(NUM_GROUPS)]

        def held() -> Cost:
            return Cost(50 * GIGA + numbers.randrange(10**8), tuple(-s + numbers.randrange(10**7) for s in saved))

        def taken() -> Cost:
            return Cost(GIGA + numbers.randrange(10**6), tuple(s // 100 + numbers.randrange(10**5) for s in saved))

        phases = tuple(tuple(taken() for _ in range(num_bounds)) for num_bounds in (2, 3))
        memory = tuple(held() for _ in range(4))
        return Option(Strategy(1, 1, 1, 1), StepShape(8, 1 + number, 1), ((False, True),) * NUM_GROUPS, phases, memory)

    groups = tuple((number,) for number in range(NUM_GROUPS))
    options = tuple(option(number) for number in range(NUM_OPTIONS))
    return CostTable("deepspeed", NUM_GROUPS, groups, options, 50 * GIGA - 33 * GIGA // 10)


def greatest(costs: tuple[Cost, ...]) -> np.ndarray:
    return np.max([each.constant + ALL @ np.array(each.by_group) for each in costs], axis=0)


@pytest.fixture(scope="module")
def least_ns(table: CostTable) -> int:
    """The fastest that fits, by enumeration."""
    found = []
    for option in table.options:
        step_ns = sum(greatest(bounds) for bounds in option.phases_ns)
        found += list(step_ns[greatest(option.memory_bytes) <= table.budget_bytes])
    return int(min(found))


@pytest.mark.parametrize("time_limit_s", [0.1, 1.0])
def test_the_best_found_in_time_fits_and_its_bound_is_true(
    table: CostTable, least_ns: int, time_limit_s: float
) -> None:
    started_s = time.perf_counter()
    found = solve(table, time_limit_s=time_limit_s)
    assert time.perf_counter() - started_s < time_limit_s + 5
    assert found is not None
    assert found.status == "FEASIBLE"
    assert found.option.peak_bytes(found.recomputed) <= table.budget_bytes
    assert found.objective == found.option.step_ns(found.recomputed)
    assert 0 <= found.bound <= least_ns <= found.objective
    assert found.gap == (found.objective - found.bound) / found.objective


def test_with_no_time_at_all_a_choice_that_needs_no_search_is_found(table: CostTable, least_ns: int) -> None:
    found = solve(table, time_limit_s=1e-9)
    assert found is not None
    assert found.status == "FEASIBLE"
    assert found.option.peak_bytes(found.recomputed) <= table.budget_bytes
    assert 0 < found.bound <= least_ns <= found.objective


def test_where_nothing_was_found_in_time_the_error_says_what_to_do() -> None:
    """Recomputing nothing and recomputing everything need the same: what fits has to be searched for."""
    addends = tuple((-1) ** group * GIGA for group in range(NUM_GROUPS))
    option = Option(
        Strategy(1, 1, 1, 1),
        StepShape(8, 1, 1),
        ((False, True),) * NUM_GROUPS,
        ((Cost(GIGA, (1,) * NUM_GROUPS),),),
        (Cost(60 * GIGA, addends),),
    )
    table = CostTable("deepspeed", NUM_GROUPS, tuple((g,) for g in range(NUM_GROUPS)), (option,), 57 * GIGA)
    with pytest.raises(UnsolvedError, match=r"none of 4,096 combinations .* within 1e-09 s.*--solve-time-limit"):
        solve(table, time_limit_s=1e-9)
    assert solve(table) is not None


GRAPH, MACHINE = transformer_graph(SMALL), load("dgx-a100-80gb", 1)
JOB = Job(global_batch_size=64, engine="deepspeed")


def test_enough_seconds_give_the_plan_that_no_limit_gives() -> None:
    limited = plan(GRAPH, MACHINE, JOB.model_copy(update={"solve_time_limit_s": 60.0}))
    free = plan(GRAPH, MACHINE, JOB)
    assert limited.solver.status == "OPTIMAL"
    assert (limited.strategies, limited.predicted, limited.alternatives) == (
        free.strategies,
        free.predicted,
        free.alternatives,
    )


def test_too_few_seconds_for_a_proof_give_a_plan_that_says_so() -> None:
    free = plan(GRAPH, MACHINE, JOB)
    answer = plan(GRAPH, MACHINE, JOB.model_copy(update={"solve_time_limit_s": 1e-9}))
    hasty, memory = answer.solver, answer.predicted.memory
    fitting = [o for o in answer.alternatives if o.engine == "deepspeed" and o.peak_bytes <= memory.budget_bytes]
    assert all(other.step_s >= answer.predicted.step_s for other in fitting)
    assert hasty.status == "FEASIBLE"
    assert hasty.bound_s <= free.solver.objective_s <= hasty.objective_s
    assert hasty.gap == pytest.approx((hasty.objective_s - hasty.bound_s) / hasty.objective_s)


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan")])
def test_seconds_that_are_no_limit_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="solve_time_limit_s"):
        Job(global_batch_size=64, solve_time_limit_s=seconds)


def test_the_command_takes_seconds_and_says_what_a_faster_plan_could_save(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text(GRAPH.model_dump_json())
    command = ["plan", str(graph), "--hardware", "dgx-a100-80gb", "--nodes", "1", "--global-batch-size", "64"]
    assert cli.answer([*command, "--solve-time-limit", "0.001", "--json"]) == 0
    solver = json.loads(capsys.readouterr().out)["solver"]
    assert solver["status"] == "FEASIBLE"
    assert solver["objective_s"] >= solver["bound_s"] > 0
    assert cli.answer([*command, "--solve-time-limit", "0.001"]) == 0
    assert "a faster one could save at most" in " ".join(capsys.readouterr().out.split())
    assert cli.answer([*command, "--solve-time-limit", "0"]) == 2
    assert cli.answer([*command, "--solve-time-limit", "5", "--pareto"]) == 2
    assert "give either --pareto or --solve-time-limit" in " ".join(capsys.readouterr().err.split())
