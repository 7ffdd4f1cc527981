"""Plans of the fsdp engine run from their folders, as plans of DeepSpeed do, and with torch alone."""

import json
import os
import stat
import subprocess

import pytest
from emitted import TINY, emitted, losses
from one_process import reference_losses
from torchrun import torchrun

from planner.errors import InputError, RunError
from planner.read.planned_folder import read_plan
from planner.run.hostfile import Host
from planner.run.launch_command import launch_command
from planner.run.run import run

PDSH = """#!/usr/bin/env python3
import subprocess, sys
hosts = sys.argv[sys.argv.index("-w") + 1].split(",")
commands = [sys.argv[-1].replace("%n", str(place)).replace("%%", "%") for place in range(len(hosts))]
started = [subprocess.Popen(["sh", "-c", command]) for command in commands]
sys.exit(max(process.wait() for process in started))
"""


def fsdp(folder, degrees, **options):
    return emitted(folder, degrees, world_size=4, engine="fsdp", **options)


def without_deepspeed(tmp_path, monkeypatch):
    """Has every process that is started from here find no DeepSpeed."""
    package = tmp_path / "hidden" / "deepspeed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('raise ImportError("hidden from this test")')
    monkeypatch.setenv("PYTHONPATH", str(package.parent))


def edit(folder, name, **changes):
    document = json.loads((folder / name).read_text()) | changes
    (folder / name).write_text(json.dumps(document))


def use_sgd(folder, **changes):
    """Adam hides a wrong scale of the gradients; this does not."""
    edit(folder, "ds_config.json", optimizer={"type": "SGD", "params": {"lr": 0.5}}, **changes)


def test_a_plan_runs_with_torch_alone_and_sends_what_was_predicted(tmp_path, monkeypatch):
    without_deepspeed(tmp_path, monkeypatch)
    folder = fsdp(tmp_path / "plan", (2, 2, 4))
    report = run(folder, steps=3)
    assert report.measured.traffic == report.predicted.traffic
    assert report.measured.memory.peak_bytes == pytest.approx(report.predicted.memory.peak_bytes, rel=0.15)
    assert report.warnings == ()
    assert [step.loss for step in report.steps] == pytest.approx(reference_losses(folder, 3), rel=1e-5)


@pytest.mark.parametrize("secondary_degree", [4, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
def test_a_block_that_lends_its_weight_is_gathered_as_often_as_predicted(tmp_path, secondary_degree):
    folder = fsdp(tmp_path / "plan", (4, 2, 4), model="Borrowing", secondary_degree=secondary_degree)
    report = run(folder, steps=3)
    assert report.measured.traffic == report.predicted.traffic
    assert [step.loss for step in report.steps] == pytest.approx(reference_losses(folder, 3), rel=1e-5)


def test_a_plan_for_deepspeed_without_it_says_what_is_missing(tmp_path, monkeypatch):
    without_deepspeed(tmp_path, monkeypatch)
    folder = emitted(tmp_path / "plan", (1, 1, 2))
    with pytest.raises(InputError, match="runs on DeepSpeed, which cannot be imported here: hidden from this test"):
        run(folder)


def test_the_same_point_trains_alike_on_both_engines(tmp_path):
    ours = fsdp(tmp_path / "fsdp", (4, 4, 4))
    theirs = emitted(tmp_path / "deepspeed", (4, 4, 4), world_size=4, engine="deepspeed")
    assert json.loads((ours / "ds_config.json").read_text())["shardplan"]["engine"] == "fsdp"
    assert losses(ours, 4, 4) == pytest.approx(losses(theirs, 4, 4), rel=1e-5)


def test_what_was_edited_is_obeyed_and_told(tmp_path):
    folder = fsdp(tmp_path / "plan", (1, 2, 4))
    use_sgd(folder, gradient_accumulation_steps=4, train_micro_batch_size_per_gpu=1)
    report = run(folder, steps=3)
    assert any("ds_config.json is not as planned" in warning for warning in report.warnings)
    assert [step.loss for step in report.steps] == pytest.approx(reference_losses(folder, 3), rel=1e-5)


def test_degrees_that_cannot_be_are_a_mistake_of_usage(tmp_path):
    folder = fsdp(tmp_path / "plan", (2, 2, 4))
    (strategy,) = json.loads((folder / "plan.json").read_text())["strategies"]
    edit(folder, "plan.json", strategies=[{**strategy, "grad_degree": 3}])
    with pytest.raises(InputError, match=r"the strategy of .* cannot run: grad degree 3 does not divide"):
        run(folder)


def test_several_hosts_are_reached_without_deepspeed(tmp_path, monkeypatch):
    folder, logs = fsdp(tmp_path / "plan", (2, 2, 4)), tmp_path / "a 100% logs"
    logs.mkdir()
    (tmp_path / "pdsh").write_text(PDSH)
    (tmp_path / "pdsh").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("MASTER_PORT", "29731")
    hosts = (Host("127.0.0.1", 3), Host("localhost", 1))
    options = ["--steps", "2", "--report", str(logs / "report.json")]
    command = launch_command(read_plan(folder), folder, logs, hosts, options)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [step["loss"] for step in json.loads((logs / "report.json").read_text())["steps"]]
    assert found == pytest.approx(reference_losses(folder, 2), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(
    ("degrees", "secondary_degree"),
    [((1, 1, 1), None), ((1, 1, 2), None), ((2, 1, 4), None), ((2, 2, 2), 1), ((4, 2, 4), 2), ((4, 4, 4), 1)],
    ids=str,
)
def test_every_kind_of_strategy_trains_as_one_process(tmp_path, degrees, secondary_degree, recompute):
    folder = fsdp(tmp_path / "plan", degrees, secondary_degree=secondary_degree, recompute=recompute)
    use_sgd(folder)
    assert losses(folder, 4, 5) == pytest.approx(reference_losses(folder), rel=1e-5)


@pytest.mark.slow
def test_a_model_that_initializes_and_copies_its_parts_late_trains_as_one_process(tmp_path):
    folder = fsdp(tmp_path / "plan", (4, 4, 4), model="Late")
    use_sgd(folder)
    assert losses(folder, 4, 5) == pytest.approx(reference_losses(folder), rel=1e-5)


@pytest.mark.slow
def test_bf16_trains_alike_on_both_engines(tmp_path):
    ours = fsdp(tmp_path / "fsdp", (1, 1, 4), precision="bf16")
    theirs = emitted(tmp_path / "ds", (1, 1, 4), world_size=4, engine="deepspeed", precision="bf16")
    assert losses(ours, 4, 4) == pytest.approx(losses(theirs, 4, 4), rel=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_short_numbers_train_as_one_process_does_in_fp32(tmp_path, precision):
    folder = fsdp(tmp_path / "fsdp", (1, 1, 4), precision=precision)
    assert losses(folder, 4, 4) == pytest.approx(reference_losses(folder, 4), rel=2e-2)


@pytest.mark.slow
def test_each_block_has_the_degrees_that_the_plan_gives_it(tmp_path):
    folder = fsdp(tmp_path / "plan", (4, 4, 4))
    (strategy,) = json.loads((folder / "plan.json").read_text())["strategies"]
    kinds = [(1, 1, 1, 1), (1, 1, 2, 4), (4, 2, 1, 4), (2, 1, 2, 2), (4, 4, 4, 4)]
    names = ("param_degree", "secondary_degree", "grad_degree", "optim_degree")
    strategies = [
        {**strategy, "blocks": [block], **dict(zip(names, kinds[place % len(kinds)], strict=True))}
        for place, block in enumerate(strategy["blocks"])
    ]
    edit(folder, "plan.json", strategies=strategies)
    use_sgd(folder)
    assert losses(folder, 4, 5) == pytest.approx(reference_losses(folder), rel=1e-5)


@pytest.mark.slow
def test_an_exception_in_a_rank_is_told_with_its_rank(tmp_path):
    folder = fsdp(tmp_path / "plan", (2, 2, 4), model="Failing")
    with pytest.raises(RunError, match="the seventh seal is broken") as caught:
        run(folder, steps=2)
    assert caught.value.rank == 1


@pytest.mark.slow
def test_ones_own_data_is_trained_on(tmp_path):
    report = run(fsdp(tmp_path / "plan", (2, 2, 2)), steps=3, data=f"{TINY}:Samples")
    assert report.steps[2].loss < report.steps[0].loss


def test_other_numbers_of_ranks_are_refused_with_both_numbers(tmp_path):
    done = torchrun(fsdp(tmp_path / "plan", (2, 2, 4)) / "launch.py", 2)
    assert done.returncode != 0
    assert "this plan is for 4 ranks, but 2 were launched" in done.stderr
