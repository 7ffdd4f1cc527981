"""Machines have the levels that their wires make, by their published wiring."""

from __future__ import annotations

import time

import networkx as nx
import pytest
from link_machines import clique, dgx_1, graph_of, mi250x, node_of_pcie, ring, sockets, star

from hw_profiles.errors import ProfileError
from hw_profiles.links.find_levels import find_levels
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.schema import Link


def six_switches(board: int, ranks: range) -> dict[tuple[str | int, str | int], float]:
    wires: dict[tuple[str | int, str | int], float] = {}
    for switch in range(6):
        wires |= star(ranks, f"nvswitch-{board}-{switch}", 25)
    return wires


def two_boards(between: float) -> LinkGraph:
    """16 V100s on two boards, a link between the switches of equal place on both."""
    trunks = {(f"nvswitch-0-{switch}", f"nvswitch-1-{switch}"): between for switch in range(6)}
    return graph_of(16, six_switches(0, range(8)) | six_switches(1, range(8, 16)) | trunks)


def bridged(num_ranks: int, per_socket: int) -> LinkGraph:
    """PCIe cards, NVLink bridges over pairs of them."""
    wires = sockets([range(first, first + per_socket) for first in range(0, num_ranks, per_socket)])
    return graph_of(num_ranks, wires | {(rank, rank + 1): 100 for rank in range(0, num_ranks, 2)})


def two_rings_of_four() -> LinkGraph:
    wires = sockets([range(4), range(4, 8)])
    return graph_of(8, wires | {(a + b, a + (b + 1) % 4): 50 for a in (0, 4) for b in range(4)})


def nodes(num_nodes: int, inside: float, between: float) -> LinkGraph:
    wires: dict[tuple[str | int, str | int], float] = {}
    for node in range(num_nodes):
        wires |= star(range(8 * node, 8 * node + 8), f"nvswitch-{node}", inside)
        wires[f"nvswitch-{node}", "leaf"] = between
    return graph_of(8 * num_nodes, wires)


@pytest.mark.parametrize(
    ("graph", "sizes", "gigabytes_per_s"),
    [
        # A GPU has 4 or 5 of its 6 NVLinks in its quad; 6 links join the quads.
        pytest.param(dgx_1(), (4, 2), (100, 150), id="DGX-1 V100"),
        pytest.param(dgx_1(link=20), (4, 2), (80, 120), id="hybrid cube mesh, slower links"),
        pytest.param(two_boards(200), (16,), (150,), id="DGX-2"),
        pytest.param(two_boards(100), (8, 2), (150, 600), id="two boards of 8, half the links between"),
        pytest.param(graph_of(8, star(range(8), "nvswitch", 450)), (8,), (450,), id="DGX H100"),
        pytest.param(graph_of(4, clique(range(4), 100)), (4,), (300,), id="HGX of 4 A100"),
        pytest.param(node_of_pcie(8, 4), (4, 2), (16, 20), id="8 PCIe cards in 2 sockets"),
        pytest.param(node_of_pcie(8, 4, pcie=31.5, between=16), (4, 2), (31.5, 16), id="the same, slower between"),
        pytest.param(node_of_pcie(8, 8), (8,), (16,), id="8 PCIe cards in one socket"),
        pytest.param(bridged(4, 4), (2, 2), (116, 32), id="4 PCIe cards, bridged pairs"),
        pytest.param(bridged(8, 8), (2, 4), (116, 32), id="8 PCIe cards in a socket, bridged pairs"),
        pytest.param(bridged(8, 4), (2, 2, 2), (116, 32, 20), id="8 PCIe cards in 2 sockets, bridged pairs"),
        pytest.param(mi250x(), (2, 4), (200, 300), id="MI250X node"),
        pytest.param(graph_of(8, clique(range(8), 64)), (8,), (448,), id="MI300X node"),
        pytest.param(two_rings_of_four(), (4, 2), (116, 20), id="two rings of 4 and PCIe"),
        pytest.param(node_of_pcie(6, 3), (3, 2), (16, 20), id="6 cards, 3 a socket"),
        pytest.param(graph_of(5, star(range(5), "host-bridge", 16)), (5,), (16,), id="5 cards"),
        pytest.param(ring(8, 50), (8,), (100,), id="ring"),
        pytest.param(ring(5, 50), (5,), (100,), id="ring of 5"),
        pytest.param(graph_of(2, {(0, 1): 50}), (2,), (50,), id="pair"),
        pytest.param(nodes(4, 450, 400), (8, 4), (450, 400), id="4 nodes"),
        pytest.param(graph_of(1, {}), (), (), id="one"),
    ],
)
def test_the_levels_are_those_of_the_wiring(
    graph: LinkGraph, sizes: tuple[int, ...], gigabytes_per_s: tuple[float, ...]
) -> None:
    found = find_levels(graph)
    assert found.sizes == sizes
    assert [speed / 1e9 for speed in found.bytes_per_s] == pytest.approx(gigabytes_per_s, rel=1e-6)
    assert found.order == tuple(range(len(graph.ranks)))


def test_sockets_of_unequal_numbers_are_no_level_and_bound_what_enters_a_rank() -> None:
    found = find_levels(graph_of(6, sockets([range(4), range(4, 6)], between=5)))
    assert found.sizes == (6,)
    # Two ranks take in 4/6 of a message over 5 GB/s while every rank takes in 5/6 of it.
    assert found.bytes_per_s == pytest.approx((5e9 * (5 / 6) / (4 / 6),), rel=1e-6)
    assert any("2 and 4 ranks" in note for note in found.notes)


def test_a_partition_that_is_no_narrower_outside_is_named_and_left_out() -> None:
    assert any("groups of 8 ranks" in note and "150 GB/s" in note for note in find_levels(two_boards(200)).notes)


@pytest.mark.parametrize(
    ("graph", "sizes", "order"),
    [
        (dgx_1((0, 2, 4, 6, 1, 3, 5, 7)), (4, 2), (0, 2, 4, 6, 1, 3, 5, 7)),
        (mi250x((0, 4, 1, 5, 2, 6, 3, 7)), (2, 4), (0, 4, 1, 5, 2, 6, 3, 7)),
    ],
)
def test_what_is_numbered_across_its_clusters_is_told_how_to_number(
    graph: LinkGraph, sizes: tuple[int, ...], order: tuple[int, ...]
) -> None:
    found = find_levels(graph)
    assert (found.sizes, found.order) == (sizes, order)
    assert any(f"CUDA_VISIBLE_DEVICES={','.join(map(str, order))}" in note for note in found.notes)


def test_parts_that_do_not_reach_each_other_are_named() -> None:
    with pytest.raises(ProfileError, match=r"2 parts.*ranks 0, 1, 2, 3; 4, 5, 6, 7"):
        find_levels(graph_of(8, clique(range(4), 10) | clique(range(4, 8), 10)))
    one_way = LinkGraph(("0", "1"), (), (Link(source="0", target="1", bytes_per_s=1),))
    with pytest.raises(ProfileError, match="both directions"):
        find_levels(one_way)


def test_sixty_four_ranks_take_less_than_a_second() -> None:
    torus = nx.convert_node_labels_to_integers(nx.grid_graph([4, 4, 4], periodic=True))
    for graph in (
        graph_of(64, clique(range(64), 25)),
        graph_of(64, dict.fromkeys(torus.edges, 50.0)),
        nodes(8, 450, 50),
    ):
        started = time.process_time()
        find_levels(graph)
        assert time.process_time() - started < 1
