"""Adapters on a frozen model, planned and then really trained on 4 ranks: traffic, memory and losses as said."""

import pytest

from hw_profiles.load import load
from planner.emit.emit import emit
from planner.job import Job
from planner.model_graph import ModelSource
from planner.pipeline import estimate
from planner.run.run import run
from planner.trace import trace
from tests.integration import lora_model

SPEC = f"{lora_model.__file__}:llama"


@pytest.fixture(scope="module")
def graph():
    source = ModelSource(spec=SPEC, kind="file")
    return trace(source, precision="fp32", device="cpu", sequence_length=64)


def trained(graph, folder, degrees, recompute="none"):
    job = Job(global_batch_size=16, micro_batch_size=2, sequence_length=64, precision="fp32", recompute=recompute)
    emit(estimate(graph, load("local-cpu", 1, 4), job, degrees), folder)
    return run(folder, steps=4)


def check(report):
    said, measured = report.predicted.memory, report.measured.memory
    assert report.measured.traffic == report.predicted.traffic
    assert said.at_rest_bytes == pytest.approx(measured.at_rest_bytes, rel=0.01)
    assert 0.98 < said.peak_bytes / measured.peak_bytes < 1.05


def test_a_sharded_frozen_model_with_adapters_trains_as_it_was_planned(graph, tmp_path):
    check(trained(graph, tmp_path / "plan", (4, 4, 4)))


@pytest.mark.slow
def test_every_stage_trains_adapters_alike(graph, tmp_path):
    points = [((1, 1, 1), "none"), ((1, 1, 4), "none"), ((1, 4, 4), "none"), ((4, 4, 4), "full")]
    reports = [trained(graph, tmp_path / str(number), *point) for number, point in enumerate(points)]
    for report in reports:
        check(report)
        assert [step.loss for step in report.steps] == pytest.approx([step.loss for step in reports[0].steps], rel=1e-4)
