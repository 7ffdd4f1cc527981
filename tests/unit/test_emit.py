import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sample_plan import PLAN

import runtime
from planner.emit.emit import REPLACEABLE, emit, plan_json
from planner.errors import InputError
from planner.launch_files import CARRIED
from planner.model_graph import ModelSource
from planner.plan import Plan


def files_below(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_folder_holds_the_plan_and_all_that_runs_it(tmp_path):
    folder = tmp_path / "a" / "plan"
    emit(PLAN, folder, extra_files={"graph.json": "{}\n"})
    assert (folder / "plan.json").read_text() == plan_json(PLAN)
    assert Plan.model_validate_json(plan_json(PLAN)) == PLAN
    assert json.loads((folder / "ds_config.json").read_text()) == PLAN.ds_config
    assert (folder / "graph.json").read_text() == "{}\n"
    assert (folder / "launch.sh").stat().st_mode & 0o111 == 0o111
    assert (folder / "hostfile.example").read_text() == "node1 slots=8\nnode2 slots=8\nnode3 slots=8\nnode4 slots=8\n"


def test_two_emissions_are_byte_identical(tmp_path):
    emit(PLAN, tmp_path / "one")
    emit(PLAN, tmp_path / "two")
    assert files_below(tmp_path / "one") == files_below(tmp_path / "two")


def test_launch_needs_nothing_of_the_planner(tmp_path):
    emit(PLAN, tmp_path / "plan")
    allowed = sys.stdlib_module_names | {"torch", "deepspeed", "transformers", CARRIED}
    for path in sorted((tmp_path / "plan").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path


def test_launch_py_explains_itself_away_from_this_project(tmp_path):
    emit(PLAN, tmp_path / "plan")
    command = [sys.executable, str(tmp_path / "plan" / "launch.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--steps" in done.stdout


def test_launch_sh_is_a_script_for_the_plans_ranks(tmp_path):
    emit(PLAN, tmp_path / "plan")
    script = tmp_path / "plan" / "launch.sh"
    subprocess.run(["bash", "-n", script], check=True)
    missing = subprocess.run(["bash", script], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert missing.returncode != 0
    assert "which of the 4 nodes this is" in missing.stderr


def test_a_hugging_face_config_goes_along(tmp_path):
    config = tmp_path / "model" / "config.json"
    config.parent.mkdir()
    config.write_text('{"model_type": "gpt2"}')
    for spec in (config, config.parent):
        source = ModelSource(spec=str(spec), kind="hf_config")
        plan = PLAN.model_copy(update={"model": PLAN.model.model_copy(update={"source": source})})
        emit(plan, tmp_path / "plan", force=True)
        assert (tmp_path / "plan" / "config.json").read_text() == config.read_text()


def test_an_existing_folder_is_left_as_it_is_unless_forced(tmp_path):
    folder = tmp_path / "plan"
    emit(PLAN, folder)
    (folder / "run.json").write_text("{}")
    before = files_below(folder)
    with pytest.raises(InputError, match="exists already"):
        emit(PLAN, folder)
    assert files_below(folder) == before
    emit(PLAN, folder, force=True)
    assert files_below(folder).keys() == before.keys() - {Path("run.json")}
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_even_by_force_nothing_but_a_plan_is_replaced(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    emit(PLAN, folder, force=True)
    (folder / "plan.json").rename(folder / "precious.json")
    before = files_below(tmp_path)
    with pytest.raises(InputError, match="would delete"):
        emit(PLAN, folder, force=True)
    assert files_below(tmp_path) == before


def test_what_is_written_beside_a_plan_is_not_deleted_with_it(tmp_path):
    folder = tmp_path / "plan"
    emit(PLAN, folder)
    assert {path.name for path in folder.iterdir()} <= REPLACEABLE
    (folder / "checkpoint").mkdir()
    before = files_below(tmp_path)
    with pytest.raises(InputError, match="such as checkpoint"):
        emit(PLAN, folder, force=True)
    assert files_below(tmp_path) == before


def test_a_link_to_a_plan_stays_a_link(tmp_path):
    emit(PLAN, tmp_path / "plan")
    (tmp_path / "latest").symlink_to(tmp_path / "plan")
    emit(PLAN, tmp_path / "latest", force=True)
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "plan" / "plan.json").exists()


def test_a_failed_emission_leaves_what_was_there_and_nothing_else(tmp_path):
    folder = tmp_path / "plan"
    emit(PLAN, folder)
    before = files_below(tmp_path)
    gone = ModelSource(spec=str(tmp_path / "none" / "config.json"), kind="hf_config")
    plan = PLAN.model_copy(update={"model": PLAN.model.model_copy(update={"source": gone})})
    with pytest.raises(InputError, match="cannot write"):
        emit(plan, folder, force=True)
    assert files_below(tmp_path) == before
    with pytest.raises(InputError, match="cannot write"):
        emit(plan, tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_file_is_not_taken_for_a_folder(tmp_path):
    path = tmp_path / "plan"
    path.write_text("notes")
    with pytest.raises(InputError, match="is a file"):
        emit(PLAN, path, force=True)
    assert path.read_text() == "notes"


def test_a_plan_of_the_fsdp_engine_asks_for_torch_alone(tmp_path):
    emit(PLAN.model_copy(update={"engine": "fsdp", "native_deepspeed": False}), tmp_path / "plan")
    for name in ("launch.py", "launch.sh"):
        assert "deepspeed" not in (tmp_path / "plan" / name).read_text()


def test_the_whole_runtime_is_carried(tmp_path):
    emit(PLAN, tmp_path / "plan")
    source = Path(runtime.__file__).parent
    folder = tmp_path / "plan" / CARRIED
    carried = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    assert carried == {path.relative_to(source) for path in source.rglob("*.py")}
    assert Path("fsdp/shard.py") in carried
    for path in carried:
        assert not re.search(r"^\s*(from|import) runtime\b", (folder / path).read_text(), flags=re.MULTILINE), path
