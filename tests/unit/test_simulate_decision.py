"""Which of the near-best choices is taken: the one that is the fastest when played through."""

from __future__ import annotations

import pytest
from transformer_graph import GPT2_XL, SMALL, transformer_graph

from costmodels.deepspeed.engine import DEEPSPEED
from hw_profiles.load import load
from planner import plan
from planner.choose.near_best import FASTER_PARTS, decide
from planner.choose.play import play
from planner.choose.setting import Setting, setting
from planner.choose.space import whole_space
from planner.cost_table import CostTable
from planner.job import Job
from planner.solve import Solution, solve


def asked_of(shape, name, nodes, batch) -> tuple[Setting, CostTable, Solution]:
    job = Job(global_batch_size=batch, engine="deepspeed")
    asked = setting(transformer_graph(shape), load(name, nodes), job)
    table = whole_space(asked)
    found = solve(table)
    assert found is not None
    return asked, table, found


def played_ns(asked: Setting, table: CostTable, option, recomputed) -> int:
    assignment = table.assignment(option.strategy, recomputed)
    return play(asked.workload, DEEPSPEED, asked.machine, assignment, option.shape).step_ns


@pytest.mark.parametrize(
    ("name", "nodes", "batch"), [("dgx-a100-80gb", 1, 64), ("dgx-a100-80gb", 4, 256), ("frontier-mi250x", 2, 64)]
)
def test_no_choice_of_the_whole_space_that_fits_is_faster_when_played_through(name, nodes, batch):
    asked, table, found = asked_of(SMALL, name, nodes, batch)
    decision = decide(asked, DEEPSPEED, table, found)
    steps = [
        played_ns(asked, table, option, recomputed)
        for option in table.options
        for recomputed in option.recomputations()
        if option.peak_bytes(recomputed) <= asked.budget_bytes
    ]
    assert decision.timeline.step_ns == played_ns(asked, table, decision.option, decision.recomputed)
    assert min(steps) >= decision.timeline.step_ns * FASTER_PARTS // 1000


@pytest.fixture(scope="module")
def overruled():
    return asked_of(GPT2_XL, "p4d-a100-40gb", 8, 2048)


def test_the_simulator_overrules_the_bound_where_another_choice_is_faster(overruled):
    asked, table, found = overruled
    decision = decide(asked, DEEPSPEED, table, found)
    assert decision.by == "simulation"
    assert decision.timeline.step_ns < played_ns(asked, table, found.option, found.recomputed)
    assert decision.option.step_ns(decision.recomputed) >= found.objective


def test_the_proof_stays_the_bounds_own_and_the_plan_says_who_decided(overruled):
    asked, _, found = overruled
    planned = plan(asked.graph, asked.profile, asked.job)
    assert planned.solver.decided_by == "simulation"
    assert planned.solver.status == "OPTIMAL"
    assert planned.solver.objective_s == found.objective / 1e9
    assert planned.predicted.step_s > planned.solver.objective_s
    assert planned.predicted.simulated_step_s >= planned.predicted.step_s
    assert any("the solver's bound prefers another choice" in text for text in planned.warnings)


def test_where_ranks_communicate_with_their_own_cores_the_bound_is_the_step():
    """Nothing hides, so that a step is the sum of all that it does, in whichever order."""
    graph = transformer_graph(SMALL, precision="fp32").model_copy(update={"device": "cpu"})
    planned = plan(graph, load("local-cpu", 1, 4), Job(global_batch_size=16, precision="fp32", engine="deepspeed"))
    assert planned.solver.decided_by == "bound"
    assert planned.predicted.simulated_step_s == planned.predicted.step_s
