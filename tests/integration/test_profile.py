"""Measuring this machine with real process groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.load import load
from hw_profiles.measure import profile_machine
from hw_profiles.save import save
from hw_profiles.schema import HardwareProfile

OPERATIONS = ["all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all"]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def kinds(profile: HardwareProfile) -> list[tuple[str, int, int]]:
    return [(curve.operation, curve.degree_from, curve.degree_to) for curve in profile.curves]


def test_two_ranks_started_here_measure_every_collective_between_them(tmp_path: Path) -> None:
    said: list[str] = []
    profile = profile_machine(num_nodes=2, ranks_per_node=1, quick=True, progress=said.append)
    assert profile is not None
    assert (profile.name, profile.num_nodes, profile.ranks_per_node) == ("local-cpu", 2, 1)
    assert kinds(profile) == [(operation, 1, 2) for operation in OPERATIONS]
    assert len(said) > len(OPERATIONS)
    for curve in profile.curves:
        assert [point.bytes for point in curve.points] == [1 << 10, 1 << 15, 1 << 19, 1 << 22]
    assert "gloo over TCP, interface " in profile.sources["curves"]
    assert profile.device.overlap == 0
    assert profile.device.memory_bytes > profile.device.reserved_bytes > 50 << 20
    assert 1e-7 < profile.device.operator_launch_s < 1e-3
    assert profile.device.matmul_flop_per_s["fp32"] > 1e8
    assert load(save(profile, tmp_path / "here.json")) == profile


@pytest.mark.slow
def test_two_nodes_of_two_ranks_have_curves_inside_and_between_nodes() -> None:
    profile = profile_machine(num_nodes=2, ranks_per_node=2, quick=True)
    assert profile is not None
    assert kinds(profile) == [
        (operation, inner, outer) for inner, outer in ((1, 2), (1, 4), (2, 4)) for operation in OPERATIONS
    ]


@pytest.mark.slow
def test_launched_ranks_measure_together_and_only_the_first_has_the_profile(tmp_path: Path) -> None:
    script = tmp_path / "measure.py"
    script.write_text(
        "import os, pathlib\n"
        "from hw_profiles.measure import profile_machine\n"
        "found = profile_machine(quick=True)\n"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['RANK']).write_text(\n"
        "    'none' if found is None else f'{found.num_nodes} x {found.ranks_per_node}')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ((tmp_path / "0").read_text(), (tmp_path / "1").read_text()) == ("1 x 2", "none")


def test_launched_ranks_that_are_no_whole_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ProfileError, match="4 launched ranks are not whole nodes of 3"):
        profile_machine(ranks_per_node=3)


def test_srun_without_an_address_of_rank_0_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    with pytest.raises(ProfileError, match="set MASTER_ADDR"):
        profile_machine()


def test_ranks_that_fail_are_reported_with_their_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no-such-interface")
    with pytest.raises(ProfileError, match="no-such-interface"):
        profile_machine(num_nodes=1, ranks_per_node=1, quick=True)
