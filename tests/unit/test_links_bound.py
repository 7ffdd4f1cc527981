"""Bounds of collectives on graphs small enough to bound by hand."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from link_machines import clique, dgx_1, graph_of, mi250x, node_of_pcie, ring, star

from hw_profiles.errors import ProfileError
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.links.wire_bound import wire_bound_s
from hw_profiles.schema import Operation

OPERATIONS: tuple[Operation, ...] = ("all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all")
TWO_CLIQUES = graph_of(8, clique(range(4), 100) | clique(range(4, 8), 100) | {(0, 4): 10})
STAR = graph_of(8, star(range(8), "switch", 100))


def by_hand(*seconds: float) -> dict[Operation, float]:
    return dict(zip(OPERATIONS, seconds, strict=True))


@pytest.mark.parametrize(
    ("graph", "degrees", "expected_ms"),
    [
        # A rank's 100 GB/s bring 7/8 of a gigabyte; all of it in a broadcast.
        pytest.param(STAR, (1, 8), by_hand(8.75, 8.75, 17.5, 10, 10, 8.75), id="star"),
        # Strided groups of 4: every rank takes in 3/4.
        pytest.param(STAR, (2, 8), by_hand(7.5, 7.5, 15, 10, 10, 7.5), id="star, strided"),
        # 300 GB/s enter a rank, and 3/4 of the message.
        pytest.param(
            graph_of(4, clique(range(4), 100)), (1, 4), by_hand(2.5, 2.5, 5, 10 / 3, 10 / 3, 2.5), id="clique"
        ),
        # Two links of 50 GB/s enter a rank. All-to-all: 8 x 8 / 2 shares of 1/8 over the middle, on two links.
        pytest.param(ring(8, 50), (1, 8), by_hand(8.75, 8.75, 17.5, 10, 10, 20), id="ring"),
        # Over the bridge of 10 GB/s: half the message each way, all of it where it is summed, and 4 x 4 shares of 1/8.
        pytest.param(TWO_CLIQUES, (1, 8), by_hand(50, 50, 100, 100, 100, 200), id="two cliques"),
        # Four groups of two ranks, all of which have the bridge between them.
        pytest.param(TWO_CLIQUES, (4, 8), by_hand(200, 200, 400, 400, 400, 200), id="two cliques, strided"),
        # Six links of 25 GB/s each way join the quads of a DGX-1; 16 shares of 1/8 have to pass.
        pytest.param(
            dgx_1(),
            (1, 8),
            by_hand(1000 * 7 / 8 / 150, 1000 * 7 / 8 / 150, 2000 * 7 / 8 / 150, 1000 / 150, 1000 / 150, 2000 / 150),
            id="DGX-1",
        ),
        # The package's own 200 GB/s and ways around through neighbours, which all packages want at once.
        pytest.param(mi250x(), (1, 2), by_hand(2.5, 2.5, 5, 5, 5, 2.5), id="MI250X package"),
        # Four groups over the 20 GB/s between sockets: half a message each, twice that for sums.
        pytest.param(node_of_pcie(8, 4), (4, 8), by_hand(100, 100, 200, 200, 200, 100), id="sockets"),
    ],
)
def test_bounds_are_those_of_arithmetic(
    graph: LinkGraph, degrees: tuple[int, int], expected_ms: dict[Operation, float]
) -> None:
    found = {operation: 1e3 * wire_bound_s(graph, operation, *degrees, 1e9) for operation in OPERATIONS}
    assert found == pytest.approx(expected_ms, rel=1e-6)


def test_a_reduction_is_bound_by_the_other_direction() -> None:
    """Rank 2 sends at a tenth of what it receives: 10 + 1 GB/s enter rank 1 in a broadcast, 1 + 1 leave rank 2."""
    graph = graph_of(3, clique(range(3), 10))
    slow = [link.model_copy(update={"bytes_per_s": 1e9}) if link.source == "2" else link for link in graph.links]
    graph = replace(graph, links=tuple(slow))
    assert wire_bound_s(graph, "broadcast", 1, 3, 1e9) == pytest.approx(1e9 / 11e9, rel=1e-6)
    assert wire_bound_s(graph, "reduce", 1, 3, 1e9) == pytest.approx(1e9 / 2e9, rel=1e-6)


def test_groups_of_one_rank_need_no_time() -> None:
    assert wire_bound_s(STAR, "all_reduce", 4, 4, 1e9) == 0


@pytest.mark.parametrize("degrees", [(0, 2), (2, 3), (1, 3), (4, 2), (1, 16)])
def test_degrees_that_make_no_groups_are_refused(degrees: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no groups"):
        wire_bound_s(STAR, "all_gather", *degrees, 1)


def test_a_graph_in_parts_has_no_bound() -> None:
    with pytest.raises(ProfileError, match="2 parts"):
        wire_bound_s(graph_of(4, {(0, 1): 1, (2, 3): 1}), "all_gather", 1, 4, 1)


def test_sixteen_ranks_take_less_than_two_seconds() -> None:
    for graph in (graph_of(16, clique(range(16), 10)), graph_of(16, star(range(16), "nvswitch", 150))):
        for operation in OPERATIONS:
            started = time.process_time()
            wire_bound_s(graph, operation, 4, 16, 1e9)
            assert time.process_time() - started < 2
