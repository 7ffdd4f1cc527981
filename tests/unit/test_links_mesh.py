"""A full mesh of equal wires is told from switches and from wires of different widths."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from hw_profiles.fit.fit_levels import fit_levels
from hw_profiles.links.is_mesh import is_mesh
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.read.read_machine import read_machine
from hw_profiles.schema import Curve, CurvePoint, Level, Link

DUMPS = Path(__file__).with_name("dumps")


def mesh(num_ranks: int, **wider: float) -> LinkGraph:
    """Every two ranks joined by 64 GB/s, those named `a_b` by another width."""
    ranks = tuple(str(rank) for rank in range(num_ranks))
    links = tuple(Link(source=a, target=b, bytes_per_s=wider.get(f"r{a}_{b}", 64e9)) for a, b in permutations(ranks, 2))
    return LinkGraph(ranks, (), links)


def test_equal_wires_between_all_are_a_mesh() -> None:
    graph = mesh(8)
    assert is_mesh(graph, graph.ranks, 7 * 64e9)
    assert is_mesh(graph, graph.ranks[:4], 3 * 64e9)


def test_a_wider_wire_a_missing_one_a_switch_and_a_pair_are_none() -> None:
    wider = mesh(4, r0_1=128e9)
    assert not is_mesh(wider, wider.ranks, 3 * 64e9)
    whole = mesh(4)
    assert not is_mesh(LinkGraph(whole.ranks, (), whole.links[1:]), whole.ranks, 3 * 64e9)
    star = tuple(
        Link(source=a, target=b, bytes_per_s=450e9) for rank in whole.ranks for a, b in ((rank, "s"), ("s", rank))
    )
    assert not is_mesh(LinkGraph(whole.ranks, ("s",), star), whole.ranks, 450e9)
    assert not is_mesh(mesh(2), ("0", "1"), 64e9)


@pytest.mark.parametrize(("dump", "expected"), [("mi300x.txt", True), ("dgx_h100.txt", False), ("mi250x.txt", False)])
def test_a_topology_dump_tells_a_mesh(dump: str, expected: bool) -> None:
    like = {"mi300x.txt": "mi300x-8", "dgx_h100.txt": "dgx-h100", "mi250x.txt": "frontier-mi250x"}[dump]
    assert read_machine(DUMPS / dump, (), None, like=like).levels[0].is_mesh == expected


def test_a_fit_to_small_groups_of_a_mesh_finds_what_the_whole_of_it_carries() -> None:
    def curve(degree_to: int) -> Curve:
        rate = (degree_to - 1) * 48e9
        points = tuple(
            CurvePoint(
                bytes=1 << power, seconds=(degree_to - 1) * 4e-6 + (1 << power) * (degree_to - 1) / degree_to / rate
            )
            for power in range(10, 31, 4)
        )
        return Curve(operation="all_gather", degree_from=1, degree_to=degree_to, points=points)

    before = Level(name="node", size=8, unit_bytes_per_s=1e9, alpha_s=1e-6, is_mesh=True)
    fitted = fit_levels([before], [curve(2), curve(4)], {"all_gather": ("ring",)})
    assert fitted.levels[0].is_mesh
    assert fitted.levels[0].unit_bytes_per_s == pytest.approx(7 * 48e9, rel=0.05)
    assert fitted.median_error < 0.02
