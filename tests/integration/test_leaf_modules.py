"""Layers of separate experts, of which each rank calls others: they train when they are gathered whole, and only so."""

import json

import pytest

from hw_profiles.load import load
from planner.emit.emit import emit
from planner.errors import RunError
from planner.job import Job
from planner.model_graph import ModelSource
from planner.pipeline import estimate
from planner.run.run import run
from planner.trace import trace
from tests.integration import traffic_models

pytestmark = pytest.mark.slow
LENGTH = 2
"""So few tokens that on every rank some expert has none."""


@pytest.fixture(scope="module")
def graph():
    source = ModelSource(spec=f"{traffic_models.__file__}:mixture", kind="file")
    return trace(source, precision="fp32", device="cpu", sequence_length=LENGTH)


def emitted(graph, folder, degrees):
    job = Job(global_batch_size=4, micro_batch_size=1, sequence_length=LENGTH, precision="fp32", optimizer="sgd")
    emit(estimate(graph, load("local-cpu", 1, 4), job, degrees), folder)
    return folder


def test_sharded_experts_train_as_replicated_ones(graph, tmp_path):
    whole, sharded = (run(emitted(graph, tmp_path / str(d), d), steps=5) for d in ((1, 1, 1), (4, 4, 4)))
    assert [step.loss for step in sharded.steps] == pytest.approx([step.loss for step in whole.steps], rel=1e-5)
    assert sharded.measured.traffic == sharded.predicted.traffic


def test_without_the_setting_the_ranks_disagree(graph, tmp_path):
    path = emitted(graph, tmp_path / "plan", (4, 4, 4)) / "ds_config.json"
    config = json.loads(path.read_text())
    assert config["zero_optimization"].pop("leaf_module")
    path.write_text(json.dumps(config))
    with pytest.raises(RunError):
        run(path.parent, steps=5)
