"""`run` launches what was emitted, measures it, and leaves nothing behind however it ends."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from emitted import TINY, emitted
from torchrun import torchrun

from hw_profiles.load import load
from planner import Job, plan
from planner.emit.emit import emit
from planner.errors import InputError, RunError
from planner.model_graph import ModelSource
from planner.run.run import run
from planner.run.run_report import RunReport
from planner.trace import trace

EXAMPLES = Path(__file__).parents[2] / "examples"


def processes_of(folder):
    """Process ids of launchers and ranks that run the folder's launch.py, with their rank (None: a launcher)."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            environment = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder / "launch.py").encode() in command:
            ranks = [entry[5:] for entry in environment if entry.startswith(b"RANK=")]
            found[int(path.name)] = int(ranks[0]) if ranks else None
    return found


def wait_until(holds, seconds=120):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.05)


def test_what_was_measured_stands_beside_what_was_predicted(tmp_path):
    folder = emitted(tmp_path / "plan", (2, 2, 2))
    seen = []
    report = run(folder, steps=6, on_progress=lambda *step: seen.append(step))
    assert [number for number, _, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert [loss for _, loss, _ in seen] == [step.loss for step in report.steps]
    assert all(math.isfinite(step.loss) and step.seconds > 0 for step in report.steps)
    assert report.measured.traffic == report.predicted.traffic
    assert report.measured.memory.at_rest_bytes == pytest.approx(report.predicted.memory.at_rest_bytes, rel=0.1)
    assert report.measured.memory.at_rest_bytes <= report.measured.memory.peak_bytes
    assert report.measured.step_s > 0
    assert report.warnings == ()
    assert RunReport.model_validate_json((folder / "run.json").read_bytes()) == report
    assert processes_of(folder) == {}


def test_a_plan_that_recomputes_some_blocks_of_a_class_sends_and_holds_what_it_says(tmp_path):
    arguments = {"width": "64", "depth": "6", "heads": "4", "vocab": "512"}
    source = ModelSource(spec=f"{EXAMPLES / 'gpt.py'}:gpt", kind="file", arguments=arguments)
    graph = trace(source, precision="fp32", device="cpu", sequence_length=64)
    profile = load("local-cpu", 1, 2)
    job = Job(global_batch_size=32, micro_batch_size=16, sequence_length=64, precision="fp32", engine="deepspeed")
    least, most = (
        plan(graph, profile, job.model_copy(update={"recompute": each})).predicted.memory.peak_bytes
        for each in ("full", "none")
    )
    chosen = plan(graph, profile, job.model_copy(update={"memory_budget_bytes": (least + most) // 2}))
    assert 0 < len(chosen.model.recompute_modules) < 6
    emit(chosen, tmp_path / "plan")
    report = run(tmp_path / "plan", steps=2)
    assert report.measured.traffic == report.predicted.traffic
    memory, said = report.measured.memory, report.predicted.memory
    assert memory.at_rest_bytes == pytest.approx(said.at_rest_bytes, rel=0.01)
    assert 0.98 * memory.peak_bytes <= said.peak_bytes <= 1.05 * memory.peak_bytes


def test_a_killed_rank_is_named_and_the_others_end(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 2), model="Slow")
    training = threading.Event()
    raised = []

    def launch():
        try:
            run(folder, steps=100_000, on_progress=lambda *_: training.set())
        except RunError as error:
            raised.append((error, time.monotonic()))

    thread = threading.Thread(target=launch)
    thread.start()
    assert training.wait(180)
    victim = next(pid for pid, rank in processes_of(folder).items() if rank == 1)
    killed = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    thread.join(60)
    ((error, ended),) = raised
    assert error.rank == 1
    assert "SIGKILL" in str(error)
    assert ended - killed < 20
    assert processes_of(folder) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_run_that_is_ended_leaves_no_process(tmp_path, number):
    folder = emitted(tmp_path / "plan", (1, 1, 1), model="Slow")
    script = f"""
        from pathlib import Path
        from planner.run.run import run
        run(Path({str(folder)!r}), steps=100_000, on_progress=lambda *_: print("step", flush=True))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "step\n"
        assert len(processes_of(folder)) == 3
        process.send_signal(number)
        assert process.wait(20) != 0
    wait_until(lambda: processes_of(folder) == {}, 20)


def test_an_exception_in_a_rank_is_told_with_its_last_lines(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1), model="Failing")
    with pytest.raises(RunError) as caught:
        run(folder, steps=2)
    assert caught.value.rank == 1
    assert "ArithmeticError: the seventh seal is broken" in str(caught.value)
    assert "tiny_model.py" in str(caught.value)
    assert processes_of(folder) == {}


def test_a_loss_that_is_not_finite_is_reported(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1), model="Exploding")
    report = run(folder, steps=2)
    assert [math.isfinite(step.loss) for step in report.steps] == [False, False]
    assert report.warnings == ("the loss of step 1 is not finite", "the loss of step 2 is not finite")
    assert [step["loss"] for step in json.loads((folder / "run.json").read_text())["steps"]] == [None, None]


def test_ones_own_data_is_trained_on(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1))
    report = run(folder, steps=3, data=f"{TINY}:Samples")
    assert report.steps[2].loss < report.steps[0].loss
    assert report.warnings == ()


def test_data_that_needs_arguments_is_a_mistake_of_usage(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1))
    with pytest.raises(InputError, match="called without arguments, but: missing"):
        run(folder, data=f"{TINY}:net")


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1))
    refusals = []

    def run_again(*_):
        with pytest.raises(InputError, match="another run is under way") as caught:
            run(folder)
        refusals.append(caught.value)

    run(folder, steps=1, on_progress=run_again)
    assert len(refusals) == 1
    assert (folder / "run.json").exists()


def test_a_config_that_was_edited_is_not_compared_in_silence(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1))
    config = json.loads((folder / "ds_config.json").read_text())
    config["gradient_clipping"] = 1.0
    (folder / "ds_config.json").write_text(json.dumps(config))
    (warning,) = run(folder, steps=1).warnings
    assert "ds_config.json is not as planned" in warning


def test_other_numbers_of_ranks_are_refused_with_both_numbers(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 2))
    done = torchrun(folder / "launch.py", 1)
    assert done.returncode != 0
    assert "this plan is for 2 ranks, but 1 were launched" in done.stderr
    assert 'launch.py", line' not in done.stderr


def test_no_progress_ends_the_run(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1))
    with pytest.raises(RunError, match="no step ended for 0 s"):
        run(folder, timeout_s=0.01)
    assert processes_of(folder) == {}


@pytest.mark.parametrize("name", ["plan.json", "ds_config.json", "launch.py", "shardplan_runtime/launch.py"])
def test_an_incomplete_folder_is_refused(tmp_path, name):
    folder = emitted(tmp_path / "plan", (1, 1, 1))
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        run(folder)
    with pytest.raises(InputError, match="is not a folder"):
        run(tmp_path / "none")


def test_hostfiles_that_do_not_fit_are_refused_before_launch(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1))
    hostfile = tmp_path / "hostfile"
    for text, complaint in (("localhost slots=3", "3 slots on 1 host, but the plan is for 2"), ("a:1\nb:1", "logical")):
        hostfile.write_text(text)
        with pytest.raises(InputError, match=complaint):
            run(folder, hostfile=hostfile)
    assert not (folder / "logs").exists()


def test_a_model_that_is_not_there_any_more_is_refused(tmp_path):
    folder = emitted(tmp_path / "plan", (1, 1, 1))
    with pytest.raises(InputError, match="there is no such file"):
        run(folder, model=f"{tmp_path}/gone.py:net")
