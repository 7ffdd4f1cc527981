"""DeepSpeed's choice recomputes the first blocks of a class, as few as fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformer_graph import SMALL, transformer_graph

from costmodels.assign import assign
from costmodels.deepspeed.engine import DEEPSPEED
from hw_profiles.load import load
from planner import Job, Plan, plan
from planner.choose.setting import setting
from planner.choose.timeline_of import timeline_of
from planner.errors import DoesNotFit
from planner.evaluate import evaluate
from planner.explain.retrace import retrace
from planner.machine import machine

LAYERS = 12
GRAPH = transformer_graph(replace(SMALL, num_layers=LAYERS))
PROFILE = load("dgx-a100-80gb", 1)
JOB = Job(global_batch_size=512, micro_batch_size=64, engine="deepspeed")


def planned(recompute: str = "auto", budget_bytes: int | None = None) -> Plan:
    given = {"recompute": recompute, "memory_budget_bytes": budget_bytes}
    return plan(GRAPH, PROFILE, JOB.model_copy(update=given))


def step_with_first(number: int, chosen: Plan, budget_bytes: int) -> tuple[float, int]:
    """Seconds and peak bytes of the plan's strategy with so many of the first layers recomputed."""
    job = JOB.model_copy(update={"memory_budget_bytes": budget_bytes})
    asked = setting(GRAPH, PROFILE, job)
    first = retrace(chosen, GRAPH, machine(PROFILE, "bf16", GRAPH))
    assert first is not None
    names = {f"layers.{layer}" for layer in range(number)}
    strategies = {
        index: replace(first.assignment[0], recompute="full" if block.name in names else "none")
        for index, block in enumerate(GRAPH.workload.blocks)
    }
    workload, assignment = assign(GRAPH.workload, strategies)
    found = evaluate(workload, DEEPSPEED, asked.machine, assignment, first.shape, budget_bytes, None)
    return found.step_s, found.memory.peak_bytes


@pytest.fixture(scope="module")
def between() -> tuple[Plan, int]:
    least, most = (planned(each).predicted.memory.peak_bytes for each in ("full", "none"))
    budget_bytes = (least + most) // 2
    return planned(budget_bytes=budget_bytes), budget_bytes


def test_as_few_of_the_first_blocks_as_fit_are_recomputed(between: tuple[Plan, int]) -> None:
    chosen, budget_bytes = between
    number = len(chosen.model.recompute_modules)
    assert 0 < number < LAYERS
    assert chosen.model.recompute_modules == tuple(f"layers.{layer}" for layer in range(number))
    assert chosen.predicted.memory.peak_bytes <= budget_bytes
    assert step_with_first(number, chosen, budget_bytes) == (
        chosen.predicted.step_s,
        chosen.predicted.memory.peak_bytes,
    )
    assert step_with_first(number - 1, chosen, budget_bytes)[1] > budget_bytes


def test_the_plan_says_that_it_is_faster_than_what_was_proved(between: tuple[Plan, int]) -> None:
    chosen, _ = between
    assert (chosen.solver.status, chosen.solver.decided_by) == ("OPTIMAL", "blocks")
    assert chosen.predicted.step_s < chosen.solver.objective_s
    assert chosen.predicted.simulated_step_s == timeline_of(chosen, GRAPH, machine(PROFILE, "bf16", GRAPH)).step_s


def test_full_recomputation_that_is_asked_for_is_given(between: tuple[Plan, int]) -> None:
    _, budget_bytes = between
    chosen = planned("full", budget_bytes)
    assert len(chosen.model.recompute_modules) == LAYERS
    assert chosen.solver.decided_by != "blocks"


def test_classes_are_thinned_out_one_after_the_other() -> None:
    graph = transformer_graph(replace(SMALL, num_layers=LAYERS), num_classes=2)
    with pytest.raises(DoesNotFit) as caught:
        plan(graph, PROFILE, JOB.model_copy(update={"recompute": "none", "memory_budget_bytes": 1}))
    # One byte less than what needs the least of all that recomputes nothing.
    budget_bytes = caught.value.infeasible.needed_bytes - 1
    chosen = plan(graph, PROFILE, JOB.model_copy(update={"memory_budget_bytes": budget_bytes}))
    numbers = [int(name.removeprefix("layers.")) for name in chosen.model.recompute_modules]
    assert 0 < len(numbers) < LAYERS // 2
    assert numbers == list(range(numbers[0] % 2, 2 * len(numbers), 2)), "the first of one class"
