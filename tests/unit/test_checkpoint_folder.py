"""Whatever is left in a folder of checkpoints, `latest` says a complete one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.checkpoint.folder import clear, commit, complete_checkpoints, find_checkpoint, latest, partial_folder
from runtime.ranks import LaunchError


def write_checkpoint(root: Path, step: int, keep: int | None = None) -> Path:
    partial = partial_folder(root, step)
    clear(root, partial)
    (partial / "data").write_text(str(step))
    return commit(root, partial, {"step": step}, keep)


def names(root: Path) -> list[str]:
    return [each.name for each in complete_checkpoints(root)]


def test_the_last_written_is_the_last_whatever_its_step(tmp_path: Path) -> None:
    assert latest(tmp_path / "missing") is None
    for step in (5, 10, 7):
        write_checkpoint(tmp_path, step)
        assert latest(tmp_path) == tmp_path / f"step-{step}"
    assert names(tmp_path) == ["step-5", "step-10", "step-7"]


def test_as_many_stay_as_are_kept_and_the_oldest_go(tmp_path: Path) -> None:
    for step in (5, 10, 7, 8):
        write_checkpoint(tmp_path, step, keep=2)
    assert names(tmp_path) == ["step-7", "step-8"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["latest", "step-7", "step-8"]


def test_a_step_written_again_replaces_the_old_one(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 5)
    write_checkpoint(tmp_path, 6)
    again = write_checkpoint(tmp_path, 5)
    assert latest(tmp_path) == again
    assert json.loads((again / "checkpoint.json").read_text())["number"] == 2
    assert names(tmp_path) == ["step-6", again.name]


def test_what_is_being_written_is_none_of_the_complete(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 5)
    clear(tmp_path, partial_folder(tmp_path, 6))
    (partial_folder(tmp_path, 6) / "checkpoint.json").write_text("{}")
    assert latest(tmp_path) == tmp_path / "step-5"
    write_checkpoint(tmp_path, 7)
    assert not partial_folder(tmp_path, 6).exists()


@pytest.mark.parametrize("pointer", [None, "", "step-99", "../elsewhere"])
def test_a_lost_pointer_does_not_lose_the_checkpoints(tmp_path: Path, pointer: str | None) -> None:
    write_checkpoint(tmp_path, 5)
    write_checkpoint(tmp_path, 6)
    (tmp_path / "latest").unlink()
    if pointer is not None:
        (tmp_path / "latest").write_text(pointer)
    assert latest(tmp_path) == tmp_path / "step-6"


def test_folders_that_are_not_ours_stay(tmp_path: Path) -> None:
    (tmp_path / "step-3").mkdir()
    (tmp_path / "step-3" / "mine").write_text("")
    for step in (5, 6):
        write_checkpoint(tmp_path, step, keep=1)
    assert (tmp_path / "step-3" / "mine").exists()
    assert names(tmp_path) == ["step-6"]


def test_a_folder_without_a_checkpoint_is_refused_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="does not exist"):
        find_checkpoint(tmp_path / "missing")
    with pytest.raises(LaunchError, match="has no complete checkpoint"):
        find_checkpoint(tmp_path)
    path = write_checkpoint(tmp_path, 5)
    assert find_checkpoint(path) == path
    (path / "checkpoint.json").write_text("{")
    with pytest.raises(LaunchError, match="damaged"):
        complete_checkpoints(tmp_path)
