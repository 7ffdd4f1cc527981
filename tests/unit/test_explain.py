"""Explanations are true: every formula, with its numbers, gives the figure beside it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hand_workload import hand_workload
from sample_plan import PLAN, strategy

from costmodels.collectives import collective_time
from costmodels.network import Network, NetworkCurve
from hw_profiles.load import load
from planner.explain.explain import explain
from planner.machine import machine
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
MACHINE = machine(load("dgx-a100-80gb", num_nodes=4), "bf16")
BLOCKS = tuple(block.name for block in WORKLOAD.blocks)


def explained(*strategies):
    plan = PLAN.model_copy(update={"strategies": strategies})
    return {
        section.title.split(":")[0].split(",")[0]: section.lines for section in explain(plan, GRAPH, MACHINE).sections
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
        assert evaluated(line.substituted) == pytest.approx(row.bytes, rel=1e-3)


def test_a_modelled_message_takes_its_bytes_over_the_slowest_level_and_start_ups():
    lines = explained(strategy(1, 1, 32, blocks=BLOCKS))["Time of a mean message"]
    for line, row in zip(lines, PLAN.predicted.traffic, strict=True):
        time = collective_time(row.operation, row.degree_from, row.degree_to, row.bytes // row.count, MACHINE.network)
        assert line.value == time.seconds
        assert evaluated(line.substituted.removesuffix(" s")) == pytest.approx(time.seconds, rel=1e-3)


def test_a_measured_message_says_so():
    network = Network(MACHINE.network.levels, (NetworkCurve("all_gather", 1, 32, ((1, 0.001), (2**40, 9.0))),))
    plan = PLAN.model_copy(update={"strategies": (strategy(1, 1, 32, blocks=BLOCKS),)})
    sections = explain(plan, GRAPH, replace(MACHINE, network=network)).sections
    texts = [
        line.formula for section in sections if section.title == "Time of a mean message" for line in section.lines
    ]
    assert texts[1].startswith("interpolated at ")
    assert texts[0].startswith("(")
