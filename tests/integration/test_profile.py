"""Measuring this machine with real process groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.load import load
from hw_profiles.measure.profile_machine import profile_machine
from hw_profiles.save import save
from hw_profiles.schema import HardwareProfile

OPERATIONS = ["all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all"]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)


def kinds(profile: HardwareProfile) -> list[tuple[str, int, int]]:
    return [(curve.operation, curve.degree_from, curve.degree_to) for curve in profile.curves]


def test_two_ranks_started_here_measure_every_collective_between_them(tmp_path: Path) -> None:
    said: list[tuple[str, float | None]] = []
    profile = profile_machine(num_nodes=2, ranks_per_node=1, quick=True, progress=lambda *each: said.append(each))
    assert profile is not None
    assert (profile.name, profile.num_nodes, profile.ranks_per_node) == ("local-cpu", 2, 1)
    assert kinds(profile) == [(operation, 1, 2) for operation in OPERATIONS]
    parts = [part for _, part in said if part is not None]
    assert len(parts) > len(OPERATIONS)
    assert parts == sorted(parts)
    assert parts[-1] <= 1
    for curve in profile.curves:
        sizes = [point.bytes for point in curve.points]
        assert sizes == [1024 * 4**step for step in range(len(sizes))]
        assert sizes[-1] >= 1 << 20
        assert all(point.repetitions is not None and point.repetitions >= 3 for point in curve.points)
    assert [(pair.source, pair.target) for pair in profile.pairs] == [(0, 1), (1, 0)]
    assert profile.transport.startswith("gloo over TCP, interface ")
    assert profile.transport in profile.sources["curves"]
    device = profile.known_device
    assert 0 <= device.overlap <= 1
    assert device.memory_bytes > device.reserved_bytes > 50 << 20
    assert 1e-7 < device.operator_launch_s < 1e-3
    assert device.matmul_flop_per_s["fp32"] > 1e8
    assert sorted(device.attention_flop_per_s) == sorted(device.matmul_flop_per_s)
    assert load(save(profile, tmp_path / "here.json")) == profile


@pytest.mark.slow
def test_levels_that_are_asked_for_are_started_and_measured_here() -> None:
    profile = profile_machine(quick=True, levels=(2, 2))
    assert profile is not None
    assert [(level.name, level.size) for level in profile.levels] == [("package", 2), ("node", 2)]
    assert (profile.num_nodes, profile.ranks_per_node) == (1, 4)
    assert "--levels 2,2" in profile.sources["levels.0.size"]


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
        "from hw_profiles.measure.profile_machine import profile_machine\n"
        "found = profile_machine(quick=True)\n"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['RANK']).write_text(\n"
        "    'none' if found is None else f'{found.num_nodes} x {found.ranks_per_node}')\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ((tmp_path / "0").read_text(), (tmp_path / "1").read_text()) == ("1 x 2", "none")


@pytest.mark.gpu
def test_a_single_gpu_is_measured() -> None:
    profile = profile_machine(num_nodes=1, ranks_per_node=1, quick=True)
    assert profile is not None
    device = profile.known_device
    assert (device.kind, profile.logical, profile.world_size) == ("cuda", False, 1)
    assert device.matmul_flop_per_s["bf16"] > 1e13
    assert device.attention_flop_per_s["bf16"] > 1e12
    assert device.memory_bytes > 20 * device.reserved_bytes
    assert profile.host is not None
    assert 1e9 < profile.host.link_bytes_per_s < device.memory_bytes_per_s
    assert profile.transport.startswith(("NCCL", "RCCL"))


def test_launched_ranks_that_are_no_whole_nodes_are_refused_by_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ProfileError, match="4 launched ranks are not whole nodes of 3"):
        profile_machine(ranks_per_node=3)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        profile_machine(ranks_per_node=3)


def test_levels_that_are_no_whole_nodes_are_refused() -> None:
    with pytest.raises(ProfileError, match="levels of 2,2 are 4 ranks and no whole nodes"):
        profile_machine(num_nodes=3, levels=(2, 2))
