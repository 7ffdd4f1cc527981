"""Which ranks share a node, and the levels inside and between nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.measure.hosts import Host, nodes_of, numbers_of, place_of_cores, sizes_by_place
from hw_profiles.measure.structure import (
    Finding,
    asked_structure,
    contiguous_sizes,
    found_structure,
    level_names,
    nodes_asked,
)
from hw_profiles.measure.time_pairs import bytes_per_s, pairs_to_time


def hosts(*names: str) -> list[Host]:
    return [Host(name=name, boot="b" + name) for name in names]


def test_nodes_are_the_hosts() -> None:
    assert nodes_of(hosts("a", "a", "b", "b")) == (2, 2)
    assert nodes_of(hosts("a")) == (1, 1)


def test_hosts_of_one_name_differ_by_kernel_and_network_namespace() -> None:
    assert nodes_of([Host(name="a", boot="1"), Host(name="a", boot="2")]) == (2, 1)
    assert nodes_of([Host(name="a", boot="1", network="x"), Host(name="a", boot="1", network="y")]) == (2, 1)


def test_nodes_with_unequal_numbers_of_ranks_are_refused_by_name() -> None:
    with pytest.raises(ProfileError, match="2 on a, 1 on b"):
        nodes_of(hosts("a", "a", "b"))
    with pytest.raises(ProfileError, match=r"2 on a \(x\), 1 on a \(y\)"):
        nodes_of([Host(name="a", network="x")] * 2 + [Host(name="a", network="y")])


def test_ranks_that_go_round_the_nodes_are_refused() -> None:
    with pytest.raises(ProfileError, match=r"change host 3 times among 2 hosts \(2 on a, 2 on b\).*block"):
        nodes_of(hosts("a", "b", "a", "b"))


def test_one_host_is_split_as_asked_and_several_are_not() -> None:
    assert nodes_asked(8, (1, 8), None, None) == (1, 8)
    assert nodes_asked(8, (1, 8), 2, None) == (2, 4)
    assert nodes_asked(8, (1, 8), None, 2) == (4, 2)
    assert nodes_asked(8, (2, 4), 2, 4) == (2, 4)
    with pytest.raises(ProfileError, match="2 hosts with 4 each, not on 4 nodes of 2"):
        nodes_asked(8, (2, 4), 4, None)
    with pytest.raises(ProfileError, match="3 nodes x 2 ranks are not the 8"):
        nodes_asked(8, (1, 8), 3, None)


def test_asked_levels_end_at_the_node() -> None:
    found = asked_structure((2, 4, 3), 3, 8)
    assert (found.sizes, found.names, found.node_level) == ((2, 4, 3), ("package", "node", "cluster"), 1)
    one_node = asked_structure((2, 2, 2), 1, 8)
    assert (one_node.names, one_node.node_level) == (("package", "socket", "node"), 2)
    with pytest.raises(ProfileError, match="levels of 2,3 are 6 ranks, but there are 8"):
        asked_structure((2, 3), 1, 8)
    with pytest.raises(ProfileError, match=r"have units of 3, 12 ranks, and none is a node of 4"):
        asked_structure((3, 4), 3, 4)


def test_levels_above_nodes_have_names() -> None:
    assert level_names(0, 2) == ("node", "cluster")
    assert level_names(1, 4) == ("package", "node", "rack", "cluster")
    assert level_names(4, 5)[-1] == "node"


def test_the_first_finding_decides_and_others_that_disagree_are_named() -> None:
    dump = Finding("nvidia-smi topo -m", (4, 2), tuple(range(8)))
    pairs = Finding("measured pairs", (2, 4), tuple(range(8)))
    found = found_structure(2, 8, (dump, pairs), ())
    assert found.sizes == (4, 2, 2)
    assert "inside by nvidia-smi topo -m" in found.decided
    assert len(found.warnings) == 1
    assert "measured pairs says 2 x 4, but nvidia-smi topo -m says 4 x 2; --levels decides" in found.warnings[0]
    assert found_structure(2, 8, (dump, Finding("measured pairs", (4, 2), tuple(range(8)))), ()).warnings == ()


def test_a_finding_of_other_units_is_not_used_and_said_so() -> None:
    found = found_structure(1, 4, (Finding("nvidia-smi topo -m", (4, 2), tuple(range(8))),), ())
    assert found.sizes == (4, 1)
    assert "speaks of 8 units, but there are 4" in found.warnings[0]


def test_racks_are_found_between_nodes() -> None:
    found = found_structure(4, 2, (), (Finding("measured pairs", (2, 2), (0, 1, 2, 3)),))
    assert (found.sizes, found.names, found.node_level) == ((2, 2, 2), ("node", "rack", "cluster"), 0)


def test_levels_whose_units_are_no_contiguous_ranks_are_left_out() -> None:
    assert contiguous_sizes((2, 2), (0, 1, 2, 3)) == (2, 2)
    assert contiguous_sizes((2, 2), (1, 0, 3, 2)) == (2, 2)
    assert contiguous_sizes((2, 2), (0, 2, 1, 3)) == (4,)
    assert contiguous_sizes((2, 2, 2), (0, 2, 1, 3, 4, 6, 5, 7)) == (4, 2)


def test_pinned_ranks_show_packages_and_numa_nodes() -> None:
    def pinned(*places: tuple[int | None, int | None]) -> list[Host]:
        return [Host(name="a", package=package, numa=numa) for package, numa in places]

    assert sizes_by_place(pinned((0, 0), (0, 1), (1, 2), (1, 3))) == (2, 2)
    assert sizes_by_place(pinned(*[(package, 2 * package + numa) for package in (0, 1) for numa in (0, 0, 1, 1)])) == (
        2,
        2,
        2,
    )
    assert sizes_by_place(pinned((0, None), (0, None))) is None
    assert sizes_by_place(pinned((None, None), (None, None))) is None
    assert sizes_by_place(pinned((0, 0), (0, 0), (1, 1))) is None
    assert sizes_by_place(pinned((0, 0), (1, 1), (0, 0), (1, 1))) is None


def test_the_place_of_a_rank_is_that_of_all_its_cores(tmp_path: Path) -> None:
    for core in range(4):
        folder = tmp_path / f"cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{core // 2}\n")
    for node, cores in ((0, "0-1"), (1, "2,3")):
        (tmp_path / f"node/node{node}").mkdir(parents=True)
        (tmp_path / f"node/node{node}/cpulist").write_text(cores + "\n")
    assert place_of_cores((2, 3), tmp_path) == (1, 1)
    assert place_of_cores((0,), tmp_path) == (0, 0)
    assert place_of_cores((0, 1, 2, 3), tmp_path) == (None, None)
    assert numbers_of("0-2,8") == (0, 1, 2, 8)


def test_all_pairs_of_few_ranks_are_timed_and_of_many_those_that_show_the_levels() -> None:
    assert len(pairs_to_time(2, 8)) == 16 * 15
    many = pairs_to_time(4, 8)
    assert len(many) == 8 * 7 + 4 * 3
    assert (0, 24) in many
    assert len(pairs_to_time(1000, 8)) == 8 * 7 + 16 * 15
    assert pairs_to_time(1, 1) == ()


def test_a_pairs_bandwidth_is_never_the_difference_of_noise() -> None:
    assert bytes_per_s(1 << 20, [1.2e-3, 1.1e-3], [0.1e-3, 5e-3]) == pytest.approx((1 << 20) / 1e-3)
    # An empty message that took as long as the large one: at most twice the speed.
    assert bytes_per_s(1 << 20, [1e-3, 2e-3], [1.9e-3, 3e-3]) == pytest.approx(2 * (1 << 20) / 1e-3)
