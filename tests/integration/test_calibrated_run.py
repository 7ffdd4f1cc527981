"""`run --calibrate`: the next prediction is nearer to what the ranks do."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from hw_profiles.load import load
from hw_profiles.save import save
from planner import estimate
from planner.emit.emit import emit
from planner.job import Job
from planner.model_graph import ModelSource
from planner.read.planned_folder import planned_from
from planner.trace import trace

GPT = Path(__file__).parents[2] / "examples" / "gpt.py"
JOB = Job(
    global_batch_size=8, micro_batch_size=2, sequence_length=128, precision="fp32", recompute="none", offload="none"
)
WRONG = 8.0


@pytest.fixture(scope="module")
def graph():
    source = ModelSource(
        spec=f"{GPT}:gpt", kind="file", arguments={"width": "256", "depth": "4", "heads": "4", "vocab": "2048"}
    )
    return trace(source, precision="fp32", device="cpu", sequence_length=128)


@pytest.fixture(scope="module")
def too_fast():
    """A profile of this machine whose ranks compute many times faster than they do."""
    profile = load("local-cpu", 1, 2)
    device = profile.known_device
    rates = {key: WRONG * rate for key, rate in device.matmul_flop_per_s.items()}
    faster = {
        "matmul_flop_per_s": rates,
        "peak_flop_per_s": rates,
        "memory_bytes_per_s": WRONG * device.memory_bytes_per_s,
        "operator_launch_s": device.operator_launch_s / WRONG,
    }
    return profile.model_copy(update={"device": device.model_copy(update=faster)})


def shardplan(*arguments):
    command = [str(Path(sys.executable).with_name("shardplan")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("engine", ["fsdp", pytest.param("deepspeed", marks=pytest.mark.slow)])
def test_a_second_prediction_is_nearer_to_the_run_than_the_first(tmp_path, graph, too_fast, engine):
    job = JOB.model_copy(update={"engine": engine})
    first = estimate(graph, too_fast, job, (2, 2, 2))
    folder, out = tmp_path / "plan", tmp_path / "calibrated.json"
    emit(first, folder, extra_files=planned_from(graph, too_fast))
    said = shardplan("run", folder, "--steps", "3", "--calibrate", out)
    assert said.returncode == 0, said.stderr
    assert "all-gather over 2" in said.stdout.split("Calibration")[1]
    report = json.loads((folder / "run.json").read_text())
    second = estimate(graph, out, job, (2, 2, 2))
    computed_s = sorted(report["apart"]["compute_s"])[len(report["apart"]["compute_s"]) // 2]
    assert second.predicted.compute_s == pytest.approx(computed_s, rel=0.05)
    errors = [abs(math.log(each.predicted.simulated_step_s / report["measured"]["step_s"])) for each in (first, second)]
    assert errors[1] < errors[0] / 2


def test_where_it_cannot_be_written_nothing_runs(tmp_path, graph, too_fast):
    folder = tmp_path / "plan"
    emit(estimate(graph, too_fast, JOB, (1, 1, 2)), folder, extra_files=planned_from(graph, too_fast))
    save(too_fast, tmp_path / "file")
    said = shardplan("run", folder, "--calibrate", tmp_path / "file" / "profile.json")
    assert said.returncode == 2
    assert "cannot write the profile" in said.stderr
    assert not (folder / "run.json").exists()
