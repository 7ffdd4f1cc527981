"""The command line keeps the contract: exit codes, one JSON document, and no traceback for a mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import cli
from hw_profiles.load import load, shipped_names

MODEL = """
import os

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width, depth, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1).float(), tokens.flatten())


def net(micro_batch_size, sequence_length, width=256, depth=3, vocab=1000):
    tokens = torch.zeros(micro_batch_size, sequence_length, dtype=torch.long)
    return Net(int(width), int(depth), int(vocab)), {"tokens": tokens}


def talkative(micro_batch_size, sequence_length):
    print("from print")
    os.write(1, b"from below python")
    return net(micro_batch_size, sequence_length)


def endless(micro_batch_size, sequence_length):
    print("looping", flush=True)
    while True:
        pass


def broken(micro_batch_size, sequence_length):
    raise RuntimeError("this model cannot be built")
"""

JOB = ["--hardware", "dgx-a100-80gb", "--nodes", "4", "--global-batch-size", "256", "--sequence-length", "128"]
HUGE = ["--model-arg", "width=65536", "--model-arg", "depth=96"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    (path / "model.py").write_text(MODEL)
    (path / "broken.json").write_text("{")
    (path / "list.json").write_text("[]")
    return path


@pytest.fixture(scope="module")
def graph(folder):
    """A saved trace, so that the tests beneath do not trace again."""
    path = folder / "net.json"
    assert cli.answer(["trace", f"{folder}/model.py:net", "--sequence-length", "128", "--out", str(path)]) == 0
    return str(path)


def answered(capsys, *arguments):
    """Exit code, standard output and standard error of a command line."""
    capsys.readouterr()
    code = cli.answer([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return code, captured.out, captured.err


BAD_USAGE = {
    "no command of that name": (["plann"], "No such command"),
    "an option of no name": (["machines", "--jsn"], "No such option"),
    "no machine": (["plan", "MODEL", "--global-batch-size", "8"], "--hardware"),
    "a batch of 0": (["plan", "MODEL", "--hardware", "local-cpu", "--global-batch-size", "0"], "--global-batch-size"),
    "a negative batch": (["plan", "MODEL", "--hardware", "local-cpu", "--global-batch-size", "-8"], "greater than"),
    "a batch in words": (["plan", "MODEL", "--hardware", "local-cpu", "--global-batch-size", "many"], "valid integer"),
    "a precision of no name": (["plan", "MODEL", *JOB, "--precision", "bf61"], "bf61"),
    "a budget without a unit's name": (["plan", "MODEL", *JOB, "--memory-budget", "70G"], "70GiB"),
    "no budget at all": (["plan", "MODEL", *JOB, "--memory-budget", "0"], "at least one byte"),
    "two degrees": (["estimate", "MODEL", *JOB, "--degrees", "1,8"], "1,8,32"),
    "no strategy to estimate": (["estimate", "MODEL", *JOB], "--degrees"),
    "two strategies to estimate": (["estimate", "MODEL", *JOB, "--degrees", "1,1,1", "--ds-config", "x"], "either"),
    "a secondary degree of a config": (
        ["estimate", "MODEL", *JOB, "--ds-config", "x", "--secondary-degree", "8"],
        "--secondary-degree",
    ),
    "nodes that are no numbers": (["sweep", "MODEL", *JOB[:2], *JOB[4:], "--nodes", "1,two"], "1,2,4"),
    "a topology": (["profile", "--topology", "x"], "cannot read x: No such file"),
    "benchmark outputs": (["profile", "--collectives", "x"], "cannot read x: No such file"),
    "a machine of no name": (["plan", "MODEL", "--hardware", "dgx-a100", "--global-batch-size", "8"], "dgx-a100-80gb"),
    "no folder to run": (["run", "nowhere"], "nowhere"),
    "no folder to explain": (["explain", "nowhere"], "nowhere"),
    "no steps": (["run", "nowhere", "--steps", "0"], "--steps"),
}


@pytest.mark.parametrize("case", sorted(BAD_USAGE))
def test_a_mistake_of_usage_exits_2_and_names_what_to_mend(case, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, words = BAD_USAGE[case]
    code, out, err = answered(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())


@pytest.mark.parametrize("case", ["a batch of 0", "no budget at all", "a machine of no name", "no folder to explain"])
def test_a_mistake_with_json_is_one_document_too(case, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = answered(capsys, *BAD_USAGE[case][0], "--json")
    error = json.loads(out)["error"]
    assert code == error["exit_code"] == 2
    assert error["message"] and err.startswith("error: ")


BAD_MODELS = {
    "a file that is not there": ("none.py:net", 2, "none.py"),
    "a callable that is not there": ("model.py:nett", 2, "nett"),
    "no callable named": ("model.py", 2, "model.py"),
    "a config that is no JSON": ("broken.json", 2, "broken.json"),
    "a config that is no object": ("list.json", 2, "list.json"),
    "a model that raises": ("model.py:broken", 4, "this model cannot be built"),
}


@pytest.mark.parametrize("case", sorted(BAD_MODELS))
def test_a_model_that_cannot_be_had_says_why(case, folder, capsys):
    spec, expected, words = BAD_MODELS[case]
    code, out, err = answered(capsys, "plan", folder / spec, *JOB)
    assert (code, out) == (expected, "")
    assert words in err


def test_a_batch_that_does_not_divide_is_refused_before_the_model_is_looked_at(capsys):
    code, _, err = answered(capsys, "plan", "no-such-model", *JOB, "--global-batch-size", "33")
    assert code == 2
    assert "33" in err and "32 or 64" in err


def test_an_argument_that_is_no_pair_is_refused(folder, capsys):
    code, _, err = answered(capsys, "plan", f"{folder}/model.py:net", *JOB, "--model-arg", "width")
    assert code == 2
    assert "width" in err


@pytest.mark.parametrize(
    ("more", "expected", "words"),
    [
        (["--global-batch-size", "33"], 2, "33"),
        (["--micro-batch-size", "3"], 2, "3"),
        (["--global-batch-size", "1" + "0" * 30], 2, "3.125e+28 samples per rank"),
        (["--precision", "fp32"], 2, "trace the model again"),
        (["--sequence-length", "64"], 2, "trace the model again"),
        (["--model-arg", "width=8"], 2, "--model-arg"),
        (["--memory-budget", "1MiB"], 3, "nothing fits"),
        (["--engine", "fsdp", "--pareto"], 2, "fsdp"),
    ],
)
def test_a_job_that_cannot_be_says_why(more, expected, words, graph, capsys):
    code, out, err = answered(capsys, "plan", graph, *JOB, *more)
    assert (code, out) == (expected, "")
    assert words in err


def test_what_does_not_fit_has_its_numbers_as_json(graph, capsys):
    code, out, _ = answered(capsys, "plan", graph, *JOB, "--memory-budget", "1MiB", "--json")
    error = json.loads(out)["error"]
    assert code == error["exit_code"] == 3
    assert error["infeasible"]["needed_bytes"] > error["infeasible"]["available_bytes"] == 2**20


def test_degrees_that_do_not_nest_are_refused(graph, capsys):
    code, _, err = answered(capsys, "estimate", graph, *JOB, "--degrees", "3,5,7")
    assert code == 2
    assert "3" in err


def test_a_plan_with_json_is_one_document_and_what_the_folder_holds(graph, tmp_path, capsys):
    out_folder = tmp_path / "out"
    code, out, _ = answered(capsys, "plan", graph, *JOB, "--out", out_folder, "--json")
    assert code == 0
    plan = json.loads(out)
    assert json.loads((out_folder / "plan.json").read_text()) == plan
    assert json.loads((out_folder / "ds_config.json").read_text()) == plan["ds_config"]
    assert plan["solver"]["status"] == "OPTIMAL"


def test_an_existing_folder_is_refused_before_any_work_and_left_as_it_is(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    for command in (["plan"], ["estimate", "--degrees", "1,1,1"]):
        code, out, err = answered(capsys, *command, "no-such-model", *JOB, "--out", tmp_path)
        assert (code, out) == (2, "")
        assert "--force" in err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_force_replaces_an_older_plan(graph, tmp_path, capsys):
    out_folder = tmp_path / "out"
    out_folder.mkdir()
    for name in ("plan.json", "run.json"):
        (out_folder / name).write_text("old")
    code, _, _ = answered(capsys, "plan", graph, *JOB, "--out", out_folder, "--force")
    assert code == 0
    assert not (out_folder / "run.json").exists()
    assert json.loads((out_folder / "plan.json").read_text())


def test_force_does_not_replace_what_is_no_plan(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    code, _, err = answered(capsys, "plan", "no-such-model", *JOB, "--out", tmp_path, "--force")
    assert code == 2
    assert "other things than a plan" in err
    assert (tmp_path / "kept").read_text() == "mine"


def test_a_folder_that_cannot_be_looked_at_is_a_mistake_of_usage(tmp_path, capsys):
    code, _, err = answered(capsys, "plan", "no-such-model", *JOB, "--out", tmp_path / ("x" * 300))
    assert code == 2
    assert "File name too long" in err


def test_the_summary_says_what_to_type_next(graph, tmp_path, capsys):
    code, out, _ = answered(capsys, "plan", graph, *JOB, "--out", tmp_path / "out")
    assert code == 0
    assert f"shardplan run {tmp_path / 'out'}" in " ".join(out.split())


def test_a_plan_explains_itself_and_why_another_lost(graph, tmp_path, capsys):
    assert answered(capsys, "plan", graph, *JOB, "--out", tmp_path / "out")[0] == 0
    code, out, _ = answered(capsys, "explain", tmp_path / "out", "--json")
    assert code == 0
    assert [section["title"] for section in json.loads(out)["sections"]]
    code, out, _ = answered(capsys, "explain", tmp_path / "out", "--why-not", "32,32,32", "--json")
    assert code == 0
    assert json.loads(out)["reason"] in ("time", "tie", "memory", "same")
    code, _, err = answered(capsys, "explain", tmp_path / "out", "--why-not", "3,5,7")
    assert code == 2
    assert err


@pytest.mark.parametrize("name", ["plan.json", "graph.json", "hardware.json"])
def test_a_damaged_folder_is_named_with_its_file(name, graph, tmp_path, capsys):
    assert answered(capsys, "plan", graph, *JOB, "--out", tmp_path / "out")[0] == 0
    (tmp_path / "out" / name).write_text("{")
    code, _, err = answered(capsys, "explain", tmp_path / "out")
    assert code == 2
    assert name in err


def test_a_sweep_answers_for_every_size(graph, capsys):
    code, out, _ = answered(capsys, "sweep", graph, *JOB[:2], *JOB[4:], "--nodes", "1,2", "--json")
    assert code == 0
    assert [answer["hardware"]["world_size"] for answer in json.loads(out)] == [8, 16]


def test_a_sweep_says_why_a_size_has_no_plan(graph, capsys):
    arguments = ("sweep", graph, *JOB[:2], "--global-batch-size", "128", "--nodes", "1,3")
    code, out, _ = answered(capsys, *arguments, "--json")
    assert code == 0
    legal, illegal = json.loads(out)
    assert legal["hardware"]["world_size"] == 8
    assert (illegal["world_size"], illegal["nearest"]) == (24, None)
    assert "remainder 8 of 24" in illegal["reason"]
    code, out, _ = answered(capsys, *arguments)
    assert code == 0
    assert "remainder 8 of 24" in " ".join(out.split())
    code, out, _ = answered(capsys, "sweep", graph, *JOB[:2], "--global-batch-size", "127", "--nodes", "1,3", "--json")
    assert (code, json.loads(out)["error"]["exit_code"]) == (2, 2)


def test_a_trace_has_its_totals_on_top_and_serves_as_a_model(folder, graph, capsys):
    code, out, _ = answered(capsys, "trace", f"{folder}/model.py:net", "--sequence-length", "128", "--json")
    assert code == 0
    document = json.loads(out)
    assert document == json.loads(Path(graph).read_text())
    assert (
        document["num_params"]
        == document["num_trainable_params"]
        == 1000 * 256 * 2 + 3 * (2 * 256 + 8 * 256**2 + 5 * 256)
    )
    assert document["backward_flop"] > document["forward_flop"] > 0
    assert document["saved_bytes"] > 0
    assert len(document["blocks"]) >= 5


def test_a_trace_says_by_which_way_it_was_made(folder, capsys):
    arguments = ("trace", f"{folder}/model.py:net", "--sequence-length", "16", "--model-arg", "width=32")
    code, out, _ = answered(capsys, *arguments, "--trace", "static", "--json")
    document = json.loads(out)
    assert (code, document["traced_by"], document["device"]) == (0, "static", "cuda")
    assert document["lost"] and document["num_params"] > 0
    code, out, _ = answered(capsys, *arguments, "--trace", "static", "--hardware", "frontier-mi250x")
    assert code == 0
    assert "its layers alone, without running it, in" in out
    assert "What this trace does not know, or bounds only" in out


def test_a_plan_stands_on_what_its_trace_lost(folder, capsys):
    arguments = ("plan", f"{folder}/model.py:net", *JOB, "--model-arg", "width=32")
    code, out, _ = answered(capsys, *arguments, "--trace", "static", "--json")
    assert code == 0
    assert json.loads(out)["warnings"][0].startswith("the model was traced by the way 'static'. The model did not run")


def test_a_step_under_autocast_is_traced_and_not_yet_planned(folder, tmp_path, capsys):
    path = tmp_path / "net.json"
    arguments = ("trace", f"{folder}/model.py:net", "--sequence-length", "128", "--model-arg", "width=32")
    code, _, err = answered(capsys, *arguments, "--autocast", "bf16", "--precision", "bf16")
    assert (code, "give one of both" in err) == (2, True)
    code, out, _ = answered(capsys, *arguments, "--autocast", "bf16", "--out", path, "--json")
    assert code == 0
    assert (json.loads(out)["autocast"], json.loads(out)["precision"]) == ("bf16", "fp32")
    code, _, err = answered(capsys, "plan", path, *JOB, "--precision", "fp32")
    assert code == 2
    assert "autocast to bf16, which the engines here do not run yet" in err


def test_a_verified_trace_is_beside_real_steps(folder, capsys):
    arguments = ("trace", f"{folder}/model.py:net", "--sequence-length", "16", "--model-arg", "width=32", "--verify")
    code, out, _ = answered(capsys, *arguments, "--precision", "fp32", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["holds"]
    assert [step["recompute"] for step in document["steps"]] == [False, True]
    code, out, err = answered(capsys, *arguments, "--device", "cuda")
    assert (code, out) == (2, "")
    assert "--verify runs a real step on this CPU" in err


def test_a_saved_trace_has_nothing_to_verify_or_to_trace_another_way(graph, capsys):
    code, _, err = answered(capsys, "trace", graph, "--verify")
    assert (code, "is a saved trace" in err) == (2, True)
    code, _, err = answered(capsys, "plan", graph, *JOB, "--trace", "static")
    assert (code, "--trace cannot change" in err) == (2, True)


def test_a_saved_trace_is_shown_as_it_is_and_no_other_way(graph, capsys):
    code, out, _ = answered(capsys, "trace", graph, "--json")
    assert (code, json.loads(out)["name"]) == (0, json.loads(Path(graph).read_text())["name"])
    code, _, err = answered(capsys, "trace", graph, "--device", "cpu")
    assert (code, "no option of `trace` can change" in err) == (2, True)


def test_a_trace_that_cannot_be_written_leaves_nothing(folder, tmp_path, capsys):
    (tmp_path / "taken").mkdir()
    arguments = ("trace", f"{folder}/model.py:net", "--sequence-length", "16", "--trace", "static")
    code, out, err = answered(capsys, *arguments, "--out", tmp_path / "taken")
    assert (code, out) == (2, "")
    assert "it is a folder" in err
    assert answered(capsys, *arguments, "--out", tmp_path / "new" / "net.json")[0] == 0
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["new", "new/net.json", "taken"]


def test_an_interrupted_trace_ends_at_once_and_without_a_traceback(folder):
    code = "import sys, cli; cli.main()"
    command = [sys.executable, "-c", code, "trace", f"{folder}/model.py:endless", "--sequence-length", "8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "looping\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


def test_what_a_model_prints_stays_off_the_output(folder, capfd):
    assert cli.answer(["trace", f"{folder}/model.py:talkative", "--sequence-length", "8", "--json"]) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["num_params"] > 0
    assert "from print" in captured.err
    assert "from below python" in captured.err


def test_machines_shows_one_profile_with_the_source_of_every_figure(capsys, tmp_path):
    code, out, _ = answered(capsys, "machines", "dgx-h100")
    assert code == 0
    for path in load("dgx-h100").sources:
        assert path in out
    code, out, _ = answered(capsys, "machines", "dgx-h100", "--json")
    assert code == 0
    assert json.loads(out)["name"] == "dgx-h100"
    copy = tmp_path / "mine.json"
    copy.write_text(out)
    assert answered(capsys, "machines", str(copy))[0] == 0
    code, out, err = answered(capsys, "machines", "dgx-h101")
    assert (code, out) == (2, "")
    assert "dgx-h100" in err


def test_machines_lists_every_shipped_profile(capsys):
    code, out, _ = answered(capsys, "machines", "--json")
    assert code == 0
    assert [machine["name"] for machine in json.loads(out)] == list(shipped_names())
    code, out, _ = answered(capsys, "machines")
    assert code == 0
    assert all(name in out for name in shipped_names())


def test_an_unexpected_error_is_called_a_bug_and_keeps_its_details(capsys, monkeypatch):
    monkeypatch.setattr(cli, "shipped_names", lambda: 1 / 0)
    code, out, err = answered(capsys, "machines")
    assert (code, out) == (1, "")
    assert "this is a bug in shardplan: ZeroDivisionError" in err
    details = next(word for word in err.split() if word.startswith("/")).rstrip(";")
    assert "Traceback" in Path(details).read_text()
    Path(details).unlink()


def test_a_trace_says_where_it_was_written(folder, capsys):
    path = folder / "traced.json"
    code, out, _ = answered(capsys, "trace", f"{folder}/model.py:net", "--sequence-length", "128", "--out", path)
    assert code == 0
    assert f"Written to {path}" in out.replace("\n", "")


def test_light_commands_start_without_heavy_libraries():
    code = (
        "import sys, cli; cli.answer(['machines']); "
        "heavy = [m for m in ('torch', 'ortools', 'sympy', 'transformers', 'deepspeed') if m in sys.modules]; "
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("spec", ["model.py:net", "config.json"])
def test_without_torch_a_model_is_refused_and_a_saved_trace_planned(spec, folder, graph):
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    code = "import sys; sys.modules['torch'] = None; import cli; cli.main()"
    for model, expected in ((folder / spec, 2), (graph, 0)):
        command = [sys.executable, "-c", code, "plan", str(model), *JOB]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == expected, done.stderr
        assert ("error: torch is needed to trace a model" in done.stderr) == (expected == 2)


def test_a_closed_pipe_ends_quietly():
    command = f"{sys.executable} -c 'import cli; cli.main()' machines --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


def test_a_closed_pipe_ends_a_refusal_quietly_too():
    command = [sys.executable, "-c", "import cli; cli.main()", "plan", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
        assert process.wait() == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("arguments", [["machines"], ["machines", "--json"], ["plan", "--json"]])
def test_an_output_without_room_is_a_mistake_of_usage(arguments):
    command = [sys.executable, "-c", "import cli; cli.main()", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_locale_without_the_characters_does_not_end_a_command(graph, more):
    command = [sys.executable, "-c", "import cli; cli.main()", "plan", graph, *JOB, *more]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not more or json.loads(done.stdout)["strategies"]


def test_json_is_utf_8_in_every_locale():
    command = [sys.executable, "-c", "import cli; cli.main()", "trace", "nö.py:net", "--json"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "nö.py" in json.loads(done.stdout)["error"]["message"]


def test_a_folder_is_no_file_for_a_profile(tmp_path, capsys):
    code, _, err = answered(capsys, "profile", "--out", tmp_path)
    assert code == 2
    assert "is a folder" in err


def test_help_is_there_for_every_command(capsys):
    for command in ("plan", "estimate", "sweep", "trace", "run", "explain", "profile", "machines"):
        code, out, _ = answered(capsys, command, "--help")
        assert code == 0
        assert "--json" in out
