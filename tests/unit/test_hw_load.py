"""Machines by name or path, in the size that is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from costmodels.degrees import fill, legal_degrees, nested_pairs
from hw_profiles.errors import ProfileError
from hw_profiles.load import load, shipped_names, user_profile_path
from hw_profiles.resize import resize
from hw_profiles.save import save
from hw_profiles.schema import Curve, CurvePoint, HardwareProfile, Pair


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, so that no profile measured on this machine is seen."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def with_curves(profile: HardwareProfile, *degrees: tuple[int, int]) -> HardwareProfile:
    point = (CurvePoint(bytes=1024, seconds=1e-5),)
    curves = tuple(Curve(operation="all_gather", degree_from=a, degree_to=b, points=point) for a, b in degrees)
    return profile.model_copy(update={"curves": curves, "sources": {**profile.sources, "curves": "by hand"}})


def kinds(profile: HardwareProfile) -> list[tuple[int, int]]:
    return [(curve.degree_from, curve.degree_to) for curve in profile.curves]


def test_shipped_machines_are_those_of_the_published_experiments_and_what_is_rented_today() -> None:
    assert shipped_names() == (
        "dgx-a100-80gb",
        "dgx-h100",
        "dgx-h200",
        "dgx2-v100-32gb",
        "frontier-mi250x",
        "gb200-nvl72",
        "hgx-a100-80gb-roce4",
        "l4-pcie-8",
        "local-cpu",
        "mi300x-8",
        "p4d-a100-40gb",
        "rtx4090-pcie-8",
    )
    assert [load(name).name for name in shipped_names()] == list(shipped_names())


def test_num_nodes_replaces_the_outermost_size() -> None:
    profile = load("frontier-mi250x", num_nodes=48)
    assert [level.size for level in profile.levels] == [2, 4, 48]
    assert (profile.world_size, profile.ranks_per_node, profile.num_nodes) == (384, 8, 48)


@pytest.mark.parametrize(
    ("trays", "sizes"),
    [(1, [4, 1, 1]), (2, [4, 2, 1]), (9, [4, 9, 1]), (18, [4, 18, 1]), (36, [4, 18, 2]), (18 * 7, [4, 18, 7])],
)
def test_trays_are_an_even_part_of_a_rack_or_whole_racks(trays: int, sizes: list[int]) -> None:
    profile = load("gb200-nvl72", num_nodes=trays)
    assert [level.size for level in profile.levels] == sizes
    assert (profile.world_size, profile.ranks_per_node, profile.num_nodes) == (4 * trays, 4, trays)


@pytest.mark.parametrize(
    ("trays", "near"),
    [(0, "try 1"), (4, "try 3 or 6"), (17, "try 9 or 18"), (20, "try 18 or 36"), (37, "try 36 or 54")],
)
def test_a_rack_and_a_bit_is_refused_with_the_nearest_that_can_be_had(trays: int, near: str) -> None:
    with pytest.raises(ProfileError, match=rf"cannot have {trays} nodes: it has racks of 18.*{near}$") as caught:
        load("gb200-nvl72", num_nodes=trays)
    assert (caught.value.key, caught.value.value) == ("num_nodes", trays)


def test_ranks_per_node_fill_whole_units_inside_a_node() -> None:
    sizes = {ranks: [level.size for level in load("frontier-mi250x", 2, ranks).levels] for ranks in (1, 2, 4, 8)}
    assert sizes == {1: [1, 1, 2], 2: [2, 1, 2], 4: [2, 2, 2], 8: [2, 4, 2]}


@pytest.mark.parametrize("ranks_per_node", [0, -1, 3, 6, 16])
def test_ranks_that_a_node_does_not_have_are_refused(ranks_per_node: int) -> None:
    with pytest.raises(ProfileError, match="1, 2, 4, 8") as caught:
        load("dgx-a100-80gb", ranks_per_node=ranks_per_node)
    assert (caught.value.key, caught.value.value) == ("ranks_per_node", ranks_per_node)


@pytest.mark.parametrize("num_nodes", [0, -2])
def test_a_machine_without_nodes_is_refused(num_nodes: int) -> None:
    with pytest.raises(ProfileError, match=f"{num_nodes} nodes"):
        load("dgx-a100-80gb", num_nodes=num_nodes)


def test_an_unknown_name_lists_what_is_shipped_and_what_is_near() -> None:
    with pytest.raises(ProfileError, match=r"Did you mean .*dgx-a100-80gb.*Shipped: dgx-a100-80gb, .*local-cpu"):
        load("DGX-A100-80")
    with pytest.raises(ProfileError, match=r"neither a file nor a shipped name\. Shipped"):
        load("no-such-machine")


def test_local_cpu_takes_any_nodes_and_ranks() -> None:
    profile = load("local-cpu", num_nodes=3, ranks_per_node=5)
    assert (profile.world_size, profile.num_nodes) == (15, 3)
    assert legal_degrees([level.size for level in profile.levels]) == (1, 5, 15)


def test_more_logical_ranks_share_the_cores_and_the_memory() -> None:
    four, sixteen = load("local-cpu", 1, 4), load("local-cpu", 2, 8)
    assert sixteen.device.matmul_flop_per_s["fp32"] * 4 == four.device.matmul_flop_per_s["fp32"]
    assert sixteen.device.memory_bytes * 4 == four.device.memory_bytes
    assert sixteen.levels[0].unit_bytes_per_s * 4 == four.levels[0].unit_bytes_per_s
    # A node of 8 has twice the ranks of a node of 4, each with a fourth of the speed.
    assert sixteen.levels[1].unit_bytes_per_s * 2 == four.levels[1].unit_bytes_per_s
    assert "16 ranks in place of 4" in sixteen.sources["device"]


def test_fewer_logical_ranks_than_cores_are_no_faster_than_one_core() -> None:
    one, four = load("local-cpu", 1, 1), load("local-cpu", 1, 4)
    assert one.device.matmul_flop_per_s == four.device.matmul_flop_per_s


def test_more_logical_ranks_than_memory_are_refused() -> None:
    with pytest.raises(ProfileError, match="use fewer ranks"):
        load("local-cpu", num_nodes=2, ranks_per_node=512)


def test_the_measured_profile_takes_the_place_of_local_cpu(cache: Path) -> None:
    measured = load("local-cpu", 2, 2).model_copy(update={"description": "measured"})
    assert user_profile_path() == cache / "shardplan" / "local-cpu.json"
    save(measured, user_profile_path())
    assert load("local-cpu") == measured
    assert load("local-cpu", 2, 4).description == "measured"


def test_curves_stay_where_their_groups_still_are_what_was_measured() -> None:
    measured = with_curves(load("dgx-a100-80gb", 4), (1, 8), (2, 4), (8, 16), (1, 16), (8, 32), (1, 32))
    path = save(measured, user_profile_path().parent / "machine.json")
    assert kinds(load(path, 4)) == kinds(measured)
    assert kinds(load(path, 8)) == kinds(measured)
    assert kinds(load(path, 2)) == [(1, 8), (2, 4), (8, 16), (1, 16)]
    # With 4 ranks per node the group of 8 crosses nodes, and fewer groups share a node's network.
    assert kinds(load(path, 4, 4)) == [(2, 4)]


def test_curves_inside_a_rack_outlive_the_other_racks_and_those_of_a_whole_rack_do_not_outlive_it() -> None:
    measured = with_curves(load("gb200-nvl72", 36), (1, 4), (4, 36), (1, 72), (72, 144))
    assert kinds(resize(measured, 72)) == [(1, 4), (4, 36), (1, 72), (72, 144)]
    assert kinds(resize(measured, 18)) == [(1, 4), (4, 36), (1, 72)]
    assert kinds(resize(measured, 9)) == [(1, 4), (4, 36)]


def test_pairs_stay_with_their_ranks_and_wires_with_their_node() -> None:
    pairs = tuple(
        Pair(source=source, target=target, bytes_per_s=1e9, latency_s=1e-5) for source, target in ((0, 1), (3, 9))
    )
    measured = load("mi300x-8", 2).model_copy(update={"pairs": pairs})
    assert [len(measured.links), len(measured.pairs)] == [56, 2]
    assert [len(resize(measured, 4).links), resize(measured, 4).pairs] == [56, pairs]
    assert [len(resize(measured, 1).links), resize(measured, 1).pairs] == [56, pairs[:1]]
    # Rank 9 of two nodes of 8 is another one than rank 9 of four nodes of 4.
    assert [resize(measured, 4, 4).links, resize(measured, 4, 4).pairs] == [(), ()]


def test_a_part_of_a_mesh_has_a_part_of_its_links() -> None:
    speeds = {ranks: load("mi300x-8", 1, ranks).levels[0].unit_bytes_per_s for ranks in (8, 4, 2)}
    assert speeds == {8: pytest.approx(7 * 64e9), 4: pytest.approx(3 * 64e9), 2: pytest.approx(64e9)}
    assert load("mi300x-8", 2, 1).levels[0].unit_bytes_per_s > 0
    switched = load("dgx-h100", 1, 2)
    assert switched.levels[0].unit_bytes_per_s == load("dgx-h100").levels[0].unit_bytes_per_s


def test_logical_pairs_are_dropped_with_any_change() -> None:
    pair = Pair(source=0, target=1, bytes_per_s=1e9, latency_s=1e-5)
    measured = load("local-cpu", 2, 2).model_copy(update={"pairs": (pair,)})
    assert resize(measured, 2, 2).pairs == (pair,)
    assert resize(measured, 3, 2).pairs == ()


def test_logical_curves_are_dropped_with_any_change() -> None:
    measured = with_curves(load("local-cpu", 2, 2), (1, 2), (1, 4))
    path = save(measured, user_profile_path())
    assert kinds(load(path, 2, 2)) == [(1, 2), (1, 4)]
    assert kinds(load("local-cpu", 2, 4)) == []


def test_fills_and_pairs() -> None:
    assert [fill((2, 4, 3), degree) for degree in (1, 2, 4, 8, 24, 6, 16)] == [
        (1, 1, 1),
        (2, 1, 1),
        (2, 2, 1),
        (2, 4, 1),
        (2, 4, 3),
        None,
        None,
    ]
    assert nested_pairs((1, 2, 4)) == ((1, 2), (1, 4), (2, 4))


def test_a_broken_measured_profile_is_not_passed_over_in_silence() -> None:
    user_profile_path().parent.mkdir(parents=True)
    user_profile_path().write_text("{}")
    with pytest.raises(ProfileError, match=r"(?s)local-cpu\.json is no hardware profile.*shardplan profile"):
        load("local-cpu")


def test_reading_a_machine_needs_no_torch() -> None:
    program = "import sys, hw_profiles.load, hw_profiles.measure, hw_profiles.save; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(("text", "named"), [("[" * 100_000, "nested too deep"), ("1" * 5000, "too long")])
def test_what_json_cannot_hold_is_refused(text: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=named):
        load(path)


def test_a_byte_order_mark_makes_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(load("dgx-h100").model_dump_json(exclude_none=True), encoding="utf-8-sig")
    assert load(path) == load("dgx-h100")
