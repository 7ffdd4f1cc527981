"""Pairs that were measured alone show the levels, and none that are not there, in spite of noise."""

from __future__ import annotations

import math
import random
from itertools import permutations

import pytest
from link_machines import GB, dgx_1, measured, mi250x

from hw_profiles.errors import ProfileError
from hw_profiles.links.find_levels import find_levels
from hw_profiles.links.graph_of_pairs import graph_of_pairs
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.schema import Pair


@pytest.mark.parametrize(
    ("sizes", "speeds"),
    [
        ((2, 2), (10, 1)),
        ((4, 2), (10, 4)),
        ((2, 4), (10, 4)),
        ((2, 8), (10, 2)),
        ((2, 2, 2), (10, 5, 2.5)),
        ((4, 2, 2), (100, 20, 5)),
        ((2,), (10,)),
        ((3,), (10,)),
        ((4,), (10,)),
        ((8,), (10,)),
        ((16,), (10,)),
    ],
)
def test_levels_are_found_through_noise(sizes: tuple[int, ...], speeds: tuple[float, ...]) -> None:
    for noise in (0.1, 0.2):
        for seed in range(20):
            found = find_levels(graph_of_pairs(measured(sizes, speeds, noise=noise, seed=seed)))
            assert found.sizes == sizes, (noise, seed)
            assert [speed / GB for speed in found.bytes_per_s] == pytest.approx(speeds, rel=noise)


@pytest.mark.parametrize(
    ("graph", "elsewhere", "sizes"), [(dgx_1(), 9 * GB, (4, 2)), (mi250x(), 40 * GB, (2, 4))], ids=["DGX-1", "MI250X"]
)
def test_a_mesh_has_the_same_levels_where_its_pairs_are_measured(
    graph: LinkGraph, elsewhere: float, sizes: tuple[int, ...]
) -> None:
    """Pairs without a link of their own go by the host."""
    wired = {(int(link.source), int(link.target)): link.bytes_per_s for link in graph.links}
    for seed in range(20):
        chance = random.Random(seed)
        pairs = [
            Pair(source=a, target=b, bytes_per_s=speed * (1 + 0.1 * chance.uniform(-1, 1)), latency_s=1e-5)
            for a, b in permutations(range(8), 2)
            for speed in [wired.get((a, b), elsewhere)]
        ]
        assert find_levels(graph_of_pairs(pairs)).sizes == sizes


def test_a_slow_pair_in_a_node_hides_no_level() -> None:
    pairs = measured((4, 2), (10, 1))
    slow = [
        pair.model_copy(update={"bytes_per_s": 5e8}) if {pair.source, pair.target} == {0, 3} else pair for pair in pairs
    ]
    assert find_levels(graph_of_pairs(slow)).sizes == (4, 2)


def test_one_fast_pair_makes_no_level() -> None:
    pairs = measured((8,), (10,))
    fast = [
        pair.model_copy(update={"bytes_per_s": 9e10}) if {pair.source, pair.target} == {0, 3} else pair
        for pair in pairs
    ]
    found = find_levels(graph_of_pairs(fast))
    assert found.sizes == (8,)
    assert any("no equal split" in note for note in found.notes)


def test_pairs_without_a_gap_between_their_speeds_are_called_so() -> None:
    pairs = [
        pair.model_copy(update={"bytes_per_s": GB * 1.2 ** ((pair.source * pair.target) % 8)})
        for pair in measured((8,), (1,))
    ]
    assert any("without a gap" in note for note in find_levels(graph_of_pairs(pairs)).notes)


def test_one_direction_serves_for_both() -> None:
    pairs = [pair for pair in measured((4, 2), (10, 1)) if pair.source < pair.target]
    assert find_levels(graph_of_pairs(pairs)).sizes == (4, 2)


@pytest.mark.parametrize("num_nodes", [2, 3, 16])
def test_the_first_node_and_the_first_ranks_stand_for_all(num_nodes: int) -> None:
    pairs = [
        pair
        for pair in measured((4, 2, num_nodes), (50, 20, 5), noise=0.1)
        if max(pair.source, pair.target) < 8 or pair.source % 8 == pair.target % 8 == 0
    ]
    graph = graph_of_pairs(pairs)
    assert len(graph.ranks) == 8 * num_nodes
    found = find_levels(graph)
    assert found.sizes == (4, 2, num_nodes)
    assert math.prod(found.sizes) == len(graph.ranks)


def test_the_order_of_scattered_nodes_brings_them_together() -> None:
    """Ranks dealt out to two nodes in turn."""
    place = (0, 4, 1, 5, 2, 6, 3, 7)
    pairs = [
        pair.model_copy(update={"source": place.index(pair.source), "target": place.index(pair.target)})
        for pair in measured((4, 2), (10, 1))
    ]
    found = find_levels(graph_of_pairs(pairs))
    assert (found.sizes, found.order) == ((4, 2), (0, 2, 4, 6, 1, 3, 5, 7))
    assert any("ranks in the order 0,2,4,6,1,3,5,7" in note for note in found.notes)


def pair_of(source: int, target: int) -> Pair:
    return Pair(source=source, target=target, bytes_per_s=1e9, latency_s=1e-5)


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ([], "no pairs"),
        ([pair_of(0, 0)], r"pairs\.0: from rank 0 to rank 0"),
        ([pair_of(0, 1), pair_of(0, 1)], r"pairs\.1"),
        ([pair_of(0, 1), pair_of(1, 2)], "0 and 2"),
        ([pair_of(0, 1), pair_of(0, 2), pair_of(0, 3)], "1 and 2"),
        ([pair_of(0, 1), pair_of(0, 2048)], "at most 1024"),
    ],
)
def test_pairs_that_make_no_graph_are_refused_with_their_place(pairs: list[Pair], named: str) -> None:
    with pytest.raises(ProfileError, match=named):
        graph_of_pairs(pairs)
