"""A plan that was searched with lossy options allowed runs from its folder, and sends what it predicted."""

import json

import pytest
from emitted import TINY

from hw_profiles.load import load
from planner import plan
from planner.emit.emit import emit
from planner.job import Job
from planner.model_graph import ModelSource
from planner.run.run import run
from planner.trace import trace


def slow_cluster():
    """Returns two nodes of two ranks whose links are so slow that every message is worth quantizing."""
    profile = load("local-cpu", 2, 2)
    levels = tuple(level.model_copy(update={"unit_bytes_per_s": 1e5}) for level in profile.levels)
    return profile.model_copy(update={"levels": levels, "curves": ()})


@pytest.mark.slow
def test_a_lossy_plan_runs_and_sends_what_was_predicted(tmp_path):
    folder = tmp_path / "plan"
    graph = trace(
        ModelSource(spec=f"{TINY}:net", kind="file", arguments={"model": "Net"}), precision="fp32", device="cpu"
    )
    job = Job(
        global_batch_size=8, micro_batch_size=1, precision="fp32", engine="fsdp", recompute="none", allow_lossy=True
    )
    # With little memory parameters are sharded, and then gathered.
    tight = job.model_copy(update={"memory_budget_bytes": 210_000})
    answer = plan(graph, slow_cluster(), tight)
    assert any(each.quantized_weights or each.quantized_gradients for each in answer.strategies)
    assert any(text.startswith("lossy: ") for text in answer.warnings)
    emit(answer, folder)
    report = run(folder, steps=3)
    assert report.measured.traffic == report.predicted.traffic
    edited = json.loads((folder / "ds_config.json").read_text())
    edited["shardplan"]["error_feedback"] = False
    (folder / "ds_config.json").write_text(json.dumps(edited))
    without = run(folder, steps=3)
    assert without.measured.traffic == report.measured.traffic
    assert [each.loss for each in without.steps] == pytest.approx([each.loss for each in report.steps], rel=0.02)
