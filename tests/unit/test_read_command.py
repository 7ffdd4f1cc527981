"""The command that reads a machine from files prints its profile, or says what is wrong with them."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

import cli
from hw_profiles.schema import HardwareProfile

DUMPS = Path(__file__).parent / "dumps"
CUT = "\n".join((DUMPS / "p4d.txt").read_text().split("\n")[:5])


def answered(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.answer([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_json_is_the_profile(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--topology", DUMPS / "dgx_a100.txt", "--collectives", DUMPS / "a100_1node_all_gather_perf.txt"]
    code, out, _ = answered(capsys, "profile", *files, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["name"] == "nvidia-a100-sxm4-80gb-1x8"
    assert document["device"]["name"] == "NVIDIA A100-SXM4-80GB"
    assert [(level["name"], level["size"]) for level in document["levels"]] == [("node", 8)]
    assert "dgx_a100.txt" in document["sources"]["links"]
    assert HardwareProfile.model_validate(document).ranks_per_node == 8


def test_a_page_has_the_levels_and_what_was_assumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = answered(capsys, "profile", "--topology", DUMPS / "pcie_8.txt", "--out", tmp_path / "mine.json")
    assert code == 0
    assert "socket     4" in out
    assert "assumed PCIe 4.0 x16" in " ".join((out + err).split())
    assert (tmp_path / "mine.json").is_file()


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_damaged_file_exits_2_and_keeps_nothing(
    form: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "cut.txt").write_text(CUT)
    target = tmp_path / "profile.json"
    code, out, err = answered(capsys, "profile", "--topology", tmp_path / "cut.txt", "--out", target, *form)
    assert code == 2
    assert "no such row" in " ".join((out + err).split())
    assert not target.exists()


def test_planning_on_an_unknown_device_exits_2_and_says_how_to_name_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "profile.json"
    answered(capsys, "profile", "--topology", DUMPS / "dgx_a100.txt", "--out", target)
    example = Path(__file__).parents[2] / "examples" / "gpt.py"
    code, _, err = answered(
        capsys, "plan", f"{example}:gpt", "--hardware", target, "--global-batch-size", "8", "--sequence-length", "16"
    )
    assert code == 2
    assert "--like NAME" in err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--topology", DUMPS / "p4d.txt", "--quick"], "--quick is of measuring"),
        (["--topology", DUMPS / "p4d.txt", "--ranks-per-node", "4"], "--ranks-per-node is of measuring"),
        (["--like", "dgx-h100"], "--like goes with --topology"),
    ],
)
def test_options_that_would_change_nothing_are_refused(
    options: list[str | Path], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = answered(capsys, "profile", *options, "--json")
    assert code == 2
    assert named in " ".join(err.split())


def test_a_pipe_is_read_once_and_a_pipe_that_is_written_to_stays_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    read, written = tmp_path / "read", tmp_path / "written"
    received: list[str] = []
    for pipe in (read, written):
        os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: read.write_text((DUMPS / "p4d.txt").read_text()), daemon=True)
    reader = threading.Thread(target=lambda: received.append(written.read_text()), daemon=True)
    writer.start()
    reader.start()
    options = ["--topology", read, "--like", "p4d-a100-40gb", "--out", written, "--json"]
    code, out, _ = answered(capsys, "profile", *options)
    reader.join(timeout=10)
    assert (code, written.is_fifo(), received) == (0, True, [out])


def test_a_profile_is_written_through_a_link(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "named.json").symlink_to(tmp_path / "real.json")
    code, _, _ = answered(capsys, "profile", "--topology", DUMPS / "p4d.txt", "--out", tmp_path / "named.json")
    assert (code, (tmp_path / "named.json").is_symlink(), (tmp_path / "real.json").is_file()) == (0, True, True)
