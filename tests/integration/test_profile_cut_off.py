"""Measurements that are cut off, and ranks that fail: nothing measured is lost, and who failed is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hw_profiles.errors import ProfileError, RanksFailed
from hw_profiles.measure.profile_machine import profile_machine
from hw_profiles.save import as_json, save
from hw_profiles.schema import HardwareProfile

SHARDPLAN = [sys.executable, "-c", "import cli; cli.main()"]
FIRST_CURVE = "all_gather between 1 and 2"


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)


def children(parent: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


def process_of_rank(rank: int, parent: int) -> int:
    """The process below `parent` that was started as this rank."""
    for pid in children(parent):
        if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pid
    raise AssertionError(f"no rank {rank} below {parent}")


def when(text: str, then: Callable[[], None]) -> Callable[[str, float | None], None]:
    """Progress that does something a moment after a piece was begun."""
    done: list[str] = []

    def say(said: str, _part: float | None) -> None:
        if said == text and not done:
            done.append(said)
            threading.Timer(0.3, then).start()

    return say


def pieces(journal: Path) -> dict[str, object]:
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return {line["piece"]: line["value"] for line in lines[1:]}


def measure(journal: Path, say: Callable[[str, float | None], None]) -> HardwareProfile:
    profile = profile_machine(num_nodes=1, ranks_per_node=2, quick=True, progress=say, journal=journal, patience_s=20)
    assert profile is not None
    return profile


def test_a_killed_measurement_goes_on_with_the_same_pieces_and_the_same_profile(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    others = children(os.getpid())  # servers that fork the ranks of other tests
    with pytest.raises(RanksFailed, match=r"rank 1 was ended by SIGKILL(.|\n)*goes on from there") as failure:
        measure(journal, when(FIRST_CURVE, lambda: os.kill(process_of_rank(1, os.getpid()), signal.SIGKILL)))
    assert failure.value.ranks == (1,)
    assert children(os.getpid()) == others
    before = pieces(journal)
    assert "matmul fp32" in before
    assert "all_gather 1 2" not in before
    said: list[str] = []
    resumed = measure(journal, lambda text, _part: said.append(text))
    assert f"{len(before)} pieces are measured already" in said[0]
    assert said[1] == FIRST_CURVE
    after = pieces(journal)
    assert {name: after[name] for name in before} == before
    # With all pieces there, nothing is measured, and the same bytes come out.
    said.clear()
    assert as_json(measure(journal, lambda text, _part: said.append(text))) == as_json(resumed)
    assert len(said) == 1
    save(resumed, tmp_path / "profile.json", journal)
    assert os.listdir(tmp_path) == ["profile.json"]  # noqa: PTH208


@pytest.mark.slow
def test_a_rank_that_stops_is_named_in_bounded_time() -> None:
    struck: list[float] = []
    others = children(os.getpid())

    def stop() -> None:
        os.kill(process_of_rank(1, os.getpid()), signal.SIGSTOP)
        struck.append(time.monotonic())

    with pytest.raises(RanksFailed, match="rank 1 does not answer any more while measuring") as failure:
        profile_machine(
            num_nodes=1,
            ranks_per_node=2,
            quick=True,
            progress=when("matrix products in bf16", stop),
            patience_s=3,
        )
    assert failure.value.ranks == (1,)
    assert time.monotonic() - struck[0] < 20
    assert children(os.getpid()) == others


def test_a_ranks_own_error_is_told_with_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    with pytest.raises(RanksFailed, match="no-such-interface"):
        profile_machine(num_nodes=1, ranks_per_node=1, quick=True)


def test_an_output_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    begun = time.monotonic()
    command = [*SHARDPLAN, "profile", "--quick", "--out", str(tmp_path / "file" / "profile.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot write the profile" in done.stderr
    assert time.monotonic() - begun < 5


def test_a_profile_that_cannot_be_saved_is_kept_elsewhere(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("")
    profile = HardwareProfile.model_validate_json(Path("hw_profiles/local-cpu.json").read_text())
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileError, match=r"It is kept in .*goes on from there") as failure:
        save(profile, tmp_path / "file" / "profile.json", journal)
    kept = Path(str(failure.value).partition("It is kept in ")[2].split(". ")[0])
    assert HardwareProfile.model_validate_json(kept.read_text()) == profile
    assert journal.is_file()
    kept.unlink()


@pytest.mark.slow
def test_an_interrupted_command_ends_with_130_and_keeps_its_journal(tmp_path: Path) -> None:
    command = [*SHARDPLAN, "profile", "--quick", "--ranks-per-node", "2", "--out", str(tmp_path / "p.json")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if FIRST_CURVE in line:
            break
    ranks = children(process.pid)
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=20) == 130
    assert "Traceback" not in rest
    assert "matmul fp32" in pieces(tmp_path / ".p.json.partial")
    assert len(ranks) == 2
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["the process that was launched", "the process that measures"])
def test_a_launched_rank_that_is_killed_is_named_once_and_all_processes_end(tmp_path: Path, victim: str) -> None:
    script = tmp_path / "measure.py"
    script.write_text("import sys, cli\nsys.argv[1:] = ['profile', '--quick', '--out', sys.argv[1]]\ncli.main()\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    with (tmp_path / "errors").open("w") as errors:
        launcher = subprocess.Popen(
            [*command, str(script), str(tmp_path / "p.json")],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=errors,
        )
    try:
        until = time.monotonic() + 60
        while "between 1 and 3" not in (tmp_path / "errors").read_text() and time.monotonic() < until:
            time.sleep(0.2)
        launched = [process_of_rank(rank, launcher.pid) for rank in range(3)]
        ranks = [pid for parent in launched for pid in children(parent)]
        os.kill(launched[1] if victim == "the process that was launched" else children(launched[1])[0], signal.SIGKILL)
        assert launcher.wait(timeout=40) == 1
    finally:
        launcher.kill()
    text = (tmp_path / "errors").read_text()
    assert text.count("error: measuring failed: rank 1 does not answer any more") == 1
    assert text.count("error: ") == 1
    assert "Traceback" not in text.partition("torch.distributed.run")[0].partition("Traceback (most")[0]
    assert not any(Path(f"/proc/{pid}").exists() for pid in (*launched, *ranks))
    assert "matmul fp32" in pieces(tmp_path / ".p.json.partial")
