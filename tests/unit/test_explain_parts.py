"""Every figure that a plan predicts is the sum of parts that the explanation shows with their numbers."""

from __future__ import annotations

import math
import re

import pytest
from transformer_graph import SMALL, transformer_graph

from hw_profiles.load import load
from planner import Job, Plan, estimate
from planner.explain.explain import explain
from planner.explain.retrace import retrace
from planner.machine import machine

GRAPH = transformer_graph(SMALL)
PROFILE = load("frontier-mi250x", 2)
MACHINE = machine(PROFILE, "bf16")
CASES = [((1, 1, 1), 1), ((1, 1, 16), 1), ((1, 16, 16), 1), ((16, 16, 16), 16), ((16, 16, 16), 8), ((2, 8, 16), 2)]
"""Points of DeepSpeed, and one of the ideal schedule alone."""


def estimated(degrees, secondary, recompute="full") -> Plan:
    return estimate(GRAPH, PROFILE, Job(global_batch_size=32, recompute=recompute), degrees, secondary)


def sections(plan):
    return {
        section.title.partition(",")[0].partition(":")[0]: section.lines
        for section in explain(plan, GRAPH, MACHINE).sections
    }


@pytest.mark.parametrize(("degrees", "secondary"), CASES)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_every_figure_is_the_sum_of_parts_with_numbers(degrees, secondary, recompute):
    plan = estimated(degrees, secondary, recompute)
    found, predicted = sections(plan), plan.predicted
    by_title = {"forward": 0.0, "backward": 0.0, "recomputation": 0.0, "update": 0.0}
    for line in found["Compute of a step"]:
        by_title[line.name.partition(",")[0]] += line.value
    assert predicted.compute is not None
    for name, seconds in by_title.items():
        assert seconds == pytest.approx(getattr(predicted.compute, f"{name}_s"), rel=1e-9)
    assert [line.value for line in found["Time of all messages of a step"]] == pytest.approx(
        [row.seconds for row in sorted(predicted.traffic, key=lambda r: (r.operation, r.degree_from, r.degree_to))]
    )
    exposed = sum(line.value for line in found["Communication that compute does not hide"])
    assert exposed == pytest.approx(predicted.exposed_communication_s, rel=1e-9)
    *components, rest, building = found["Bytes at the peak"]
    assert sum(line.value for line in components) == predicted.memory.peak_bytes
    assert (rest.value, building.value) == (predicted.memory.at_rest_bytes, predicted.memory.init_peak_bytes)


@pytest.mark.parametrize(("degrees", "secondary"), CASES)
def test_bytes_and_hidden_seconds_are_what_their_numbers_give(degrees, secondary):
    found = sections(estimated(degrees, secondary))
    for line in found["Bytes at the peak"]:
        numbers = [int(number.replace(",", "")) for number in re.findall(r"-?[\d,]+", line.substituted)]
        assert sum(numbers) == line.value
    for line in found["Communication that compute does not hide"]:
        sent_s, hidden_s = (float(number) for number in line.substituted.removesuffix(" s").split(" - "))
        assert math.isclose(sent_s - hidden_s, line.value, rel_tol=1e-4, abs_tol=1e-5 * sent_s)


def test_a_given_configuration_is_explained_with_its_own_settings(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text(
        '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000000}, '
        '"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {}}}'
    )
    plan = estimate(GRAPH, PROFILE, Job(global_batch_size=32), ds_config=path)
    traced = retrace(plan, GRAPH, MACHINE)
    assert traced is not None
    assert traced.engine.traffic(traced.workload, traced.assignment, traced.shape)


def test_figures_of_another_version_are_not_explained_as_this_ones():
    plan = estimated((1, 1, 16), 1)
    changed = plan.model_copy(update={"predicted": plan.predicted.model_copy(update={"step_s": 9.0})})
    assert retrace(changed, GRAPH, MACHINE) is None
    assert "plan again" in sections(changed)["Parts of a step"][0].formula
