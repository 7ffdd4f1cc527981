"""A folder that is no whole plan is refused with the file, what is wrong with it, and what to do."""

from __future__ import annotations

import json

import pytest
from transformer_graph import SMALL, transformer_graph

import cli
from hw_profiles.load import load
from planner import Job, estimate
from planner.emit.emit import emit
from planner.errors import InputError
from planner.read.planned_folder import planned_from, read_folder

GRAPH = transformer_graph(SMALL)
PROFILE = load("dgx-a100-80gb", 1)


@pytest.fixture
def folder(tmp_path):
    """A folder of `estimate`."""
    path = tmp_path / "plan"
    emit(estimate(GRAPH, PROFILE, Job(global_batch_size=8), (1, 1, 8)), path, extra_files=planned_from(GRAPH, PROFILE))
    return path


def rewritten(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refused(folder, *texts):
    with pytest.raises(InputError) as caught:
        read_folder(folder)
    for text in texts:
        assert text in str(caught.value)


def test_an_estimate_explains_itself_and_why_another_is_not_it(folder, capsys):
    assert read_folder(folder).plan.solver.status == "FIXED"
    for arguments in ([], ["--why-not", "8,8,8"], ["--why-not", "8,8,8", "--secondary-degree", "2"]):
        assert cli.answer(["explain", str(folder), *arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


def test_a_plan_of_another_version_says_both_versions(folder):
    rewritten(folder / "plan.json", schema_version=0, colour="blue")
    refused(folder, "plan.json", "version 0", "version 1", "plan again")


def test_a_key_that_is_not_known_is_named(folder):
    rewritten(folder / "plan.json", colour="blue")
    refused(folder, "plan.json", "colour", "plan again")


def test_a_key_that_is_missing_is_named(folder):
    document = json.loads((folder / "plan.json").read_text())
    del document["predicted"]
    (folder / "plan.json").write_text(json.dumps(document))
    refused(folder, "plan.json", "predicted")


@pytest.mark.parametrize("name", ["plan.json", "graph.json", "hardware.json"])
def test_a_file_that_is_gone_is_named(name, folder):
    (folder / name).unlink()
    refused(folder, name, "plan again")


@pytest.mark.parametrize("text", ["[]", "3", "null", "{", "", "\x00"])
def test_what_is_no_plan_at_all_is_refused(text, folder):
    (folder / "plan.json").write_text(text)
    refused(folder, "plan.json")


def test_files_of_two_plans_are_told_apart(folder):
    (folder / "hardware.json").write_text(planned_from(GRAPH, load("dgx-a100-80gb", 2))["hardware.json"])
    refused(folder, "hardware.json", "16 ranks", "8")


def test_a_secondary_degree_alone_is_refused(folder, capsys):
    assert cli.answer(["explain", str(folder), "--secondary-degree", "2"]) == 2
    assert "--why-not" in capsys.readouterr().err
