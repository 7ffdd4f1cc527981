"""Explanations are true: every formula, with its numbers, gives the figure beside it."""

from __future__ import annotations

import math

import pytest
from hand_workload import hand_workload
from sample_plan import PLAN, PROFILE, strategy

from planner.explain import explain
from planner.model_graph import ModelGraph
from planner.plan import PredictedMemory

WORKLOAD = hand_workload(frozen=(0,))
GRAPH = ModelGraph(
    name="Net",
    source=PLAN.model.source,
    precision="bf16",
    device="cuda",
    sequence_length=512,
    traced_by="fake",
    workload=WORKLOAD,
)
BLOCKS = tuple(block.name for block in WORKLOAD.blocks)


def explained(*strategies):
    plan = PLAN.model_copy(update={"strategies": strategies})
    return {
        section.title.split(":")[0].split(",")[0]: section.lines for section in explain(plan, GRAPH, PROFILE).sections
    }


def evaluated(text):
    """The value of a printed formula, read as people read it."""
    text = text.split(" = ")[0].replace(",", "").replace("×", "*").replace("⌈", "math.ceil(").replace("⌉", ")")
    return eval(text.removesuffix("bytes"), {"math": math})


def test_model_states_follow_their_formulas_and_frozen_parameters_have_no_gradients():
    lines = {line.name: line for line in explained(strategy(1, 1, 32, blocks=BLOCKS))["Model states of a rank"]}
    assert lines["parameters"].value == 2 * 260
    assert lines["gradients"].value == 2 * 160
    assert lines["optimizer states"].value == 12 * 5
    assert all(evaluated(line.substituted) == line.value for line in lines.values())


def test_blocks_of_other_degrees_are_explained_apart():
    lines = explained(strategy(1, 1, 1, blocks=BLOCKS[:1]), strategy(32, 32, 32, blocks=BLOCKS[1:]))
    values = [line.value for line in lines["Model states of a rank"] if line.name == "parameters"]
    assert values == [2 * 100, 2 * 5]


def test_a_secondary_copy_is_explained_where_there_is_one():
    for secondary, there in ((8, True), (1, False), (32, False)):
        lines = explained(strategy(32, 32, 32, secondary=secondary, blocks=BLOCKS))["Model states of a rank"]
        assert any(line.name == "secondary parameters" for line in lines) == there


def test_memory_terms_sum_to_the_peak():
    *terms, peak, left = explained(strategy(1, 1, 32, blocks=BLOCKS))["Memory at the peak"]
    memory: PredictedMemory = PLAN.predicted.memory
    assert sum(line.value for line in terms) == peak.value == memory.peak_bytes
    assert evaluated(left.substituted) == left.value == memory.budget_bytes - memory.peak_bytes


def test_times_sum_to_the_step_and_rates_follow_from_it():
    lines = explained(strategy(1, 1, 32, blocks=BLOCKS))["Time of an optimizer step"]
    named = {line.name: line for line in lines}
    terms = [line for line in lines if not line.formula]
    assert sum(line.value for line in terms) == pytest.approx(named["step"].value)
    assert evaluated(named["step"].substituted.removesuffix(" s")) == pytest.approx(named["step"].value, rel=1e-3)
    assert evaluated(named["throughput"].substituted.removesuffix(" s")) == pytest.approx(named["throughput"].value)


def test_traffic_is_told_per_parameter():
    lines = explained(strategy(1, 1, 32, blocks=BLOCKS))["Traffic of a rank and optimizer step"]
    for line, row in zip(lines, PLAN.predicted.traffic, strict=True):
        assert evaluated(line.substituted.split(", in ")[0]) == pytest.approx(row.bytes, rel=1e-3)
