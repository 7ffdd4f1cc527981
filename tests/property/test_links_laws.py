"""Laws of levels and of bounds, on every graph of links."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw_profiles.links.find_levels import find_levels
from hw_profiles.links.flow import capacities, entering
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.links.wire_bound import wire_bound_s
from hw_profiles.schema import Link, Operation

OPERATIONS: tuple[Operation, ...] = ("all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all")
operations = st.sampled_from(OPERATIONS)
degrees_of_four = st.sampled_from([(1, 2), (1, 4), (2, 4)])
speeds = st.integers(min_value=1, max_value=20)


@st.composite
def graphs(draw: st.DrawFn, ranks: Sequence[int] = (4,), most_switches: int = 2) -> LinkGraph:
    """A ring of all vertices, each way with a speed of its own, and other links by chance."""
    num_ranks = draw(st.sampled_from(ranks))
    switches = tuple(f"s{number}" for number in range(draw(st.integers(0, most_switches))))
    vertices = draw(st.permutations([*map(str, range(num_ranks)), *switches]))
    ends = [(a, b) for a, b in zip(vertices, [*vertices[1:], vertices[0]], strict=True) if a != b]
    others = [(a, b) for a in vertices for b in vertices if a != b]
    ends += draw(st.lists(st.sampled_from(others), max_size=8)) if others else []
    both = dict.fromkeys(pair for a, b in ends for pair in ((a, b), (b, a)))
    links = tuple(Link(source=a, target=b, bytes_per_s=draw(speeds)) for a, b in both)
    return LinkGraph(tuple(map(str, range(num_ranks))), switches, links)


def complete(draw_speeds: Sequence[int], num_ranks: int) -> LinkGraph:
    ends = [(a, b) for a in range(num_ranks) for b in range(num_ranks) if a != b]
    links = [Link(source=str(a), target=str(b), bytes_per_s=s) for (a, b), s in zip(ends, draw_speeds, strict=True)]
    return LinkGraph(tuple(map(str, range(num_ranks))), (), tuple(links))


complete_graphs = st.lists(speeds, min_size=12, max_size=12).map(lambda chosen: complete(chosen, 4))


def groups_between(num_ranks: int, inner: int, outer: int) -> list[list[str]]:
    return [
        [str(rank) for rank in range(block + first, block + outer, inner)]
        for block in range(0, num_ranks, outer)
        for first in range(inner)
    ]


def cuts(graph: LinkGraph) -> Iterator[tuple[frozenset[str], float]]:
    """Every proper set of vertices, with the bytes per second that enter it."""
    vertices = (*graph.ranks, *graph.switches)
    for size in range(1, len(vertices)):
        for inside in map(frozenset, combinations(vertices, size)):
            yield inside, sum(e.bytes_per_s for e in graph.links if e.target in inside and e.source not in inside)


def bytes_into(operation: Operation, inside: frozenset[str], members: Sequence[str]) -> float:
    """Part of the message that must enter `inside`, whatever the algorithm."""
    n, here = len(members), sum(member in inside for member in members)
    match operation:
        case "all_gather":
            return (n - here) / n if here else 0
        case "reduce_scatter":
            return here / n if here < n else 0
        case "all_reduce":
            return 1 if 0 < here < n else 0
        case "broadcast":
            return 1 if here and members[0] not in inside else 0
        case "reduce":
            return 1 if here < n and members[0] in inside else 0
        case "all_to_all":
            return here * (n - here) / n


def cut_bound(graph: LinkGraph, operation: Operation, inner: int, outer: int) -> float:
    groups = groups_between(len(graph.ranks), inner, outer)
    return max(
        sum(bytes_into(operation, inside, members) for members in groups) / entering for inside, entering in cuts(graph)
    )


@settings(max_examples=40)
@given(graphs(), operations, degrees_of_four)
def test_no_bound_is_below_that_of_a_cut(graph: LinkGraph, operation: Operation, degrees: tuple[int, int]) -> None:
    assert wire_bound_s(graph, operation, *degrees, 1) >= cut_bound(graph, operation, *degrees) * (1 - 1e-6)


@settings(max_examples=40)
@given(graphs(ranks=(2, 3, 4, 5)), st.sampled_from(["all_gather", "reduce_scatter", "broadcast", "reduce"]))
def test_a_single_group_is_bound_by_its_worst_cut(graph: LinkGraph, operation: Operation) -> None:
    n = len(graph.ranks)
    assert wire_bound_s(graph, operation, 1, n, 1) == pytest.approx(cut_bound(graph, operation, 1, n), rel=1e-6)


def algorithms(operation: Operation, members: Sequence[str]) -> list[dict[tuple[str, str], float]]:
    """What some real algorithms put on the links between ranks, per byte of the message."""
    n, root = len(members), members[0]
    ring = list(zip(members, [*members[1:], root], strict=True))
    pairs = [(a, b) for a in members for b in members if a != b]
    there, back = [(root, other) for other in members[1:]], [(other, root) for other in members[1:]]
    known: dict[Operation, list[dict[tuple[str, str], float]]] = {
        "all_gather": [dict.fromkeys(ring, (n - 1) / n), dict.fromkeys(pairs, 1 / n)],
        "reduce_scatter": [dict.fromkeys(ring, (n - 1) / n), dict.fromkeys(pairs, 1 / n)],
        "all_reduce": [
            dict.fromkeys(ring, 2 * (n - 1) / n),
            dict.fromkeys(pairs, 2 / n),
            dict.fromkeys([*there, *back], 1.0),
            dict.fromkeys([*ring[:-1], *(end[::-1] for end in ring[:-1])], 1.0),
        ],
        "broadcast": [dict.fromkeys(ring[:-1], 1.0), dict.fromkeys(there, 1.0)],
        "reduce": [dict.fromkeys(ring[1:], 1.0), dict.fromkeys(back, 1.0)],
        "all_to_all": [dict.fromkeys(pairs, 1 / n)],
    }
    return known[operation]


@given(complete_graphs, operations, degrees_of_four, st.integers(0, 3))
def test_no_algorithm_is_faster_than_the_bound(
    graph: LinkGraph, operation: Operation, degrees: tuple[int, int], choice: int
) -> None:
    loads: dict[tuple[str, str], float] = {}
    for members in groups_between(4, *degrees):
        ways = algorithms(operation, members)
        for ends, part in ways[choice % len(ways)].items():
            loads[ends] = loads.get(ends, 0) + part
    speed = {(link.source, link.target): link.bytes_per_s for link in graph.links}
    seconds = max(part / speed[ends] for ends, part in loads.items())
    assert wire_bound_s(graph, operation, *degrees, 1) <= seconds * (1 + 1e-6)


@settings(max_examples=40)
@given(graphs(), operations, degrees_of_four, st.data())
def test_a_faster_link_never_raises_a_bound(
    graph: LinkGraph, operation: Operation, degrees: tuple[int, int], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(graph.links) - 1))
    links = list(graph.links)
    links[number] = links[number].model_copy(update={"bytes_per_s": links[number].bytes_per_s * 3})
    faster = LinkGraph(graph.ranks, graph.switches, tuple(links))
    bound = wire_bound_s(graph, operation, *degrees, 1)
    assert wire_bound_s(faster, operation, *degrees, 1) <= bound * (1 + 1e-6)


@settings(max_examples=40)
@given(graphs(), operations, degrees_of_four, st.integers(1, 2**40), st.integers(1, 1000))
def test_bounds_grow_with_bytes_and_shrink_with_speed_in_proportion(
    graph: LinkGraph, operation: Operation, degrees: tuple[int, int], num_bytes: int, factor: int
) -> None:
    one = wire_bound_s(graph, operation, *degrees, 1)
    assert wire_bound_s(graph, operation, *degrees, num_bytes) == pytest.approx(num_bytes * one)
    links = tuple(link.model_copy(update={"bytes_per_s": link.bytes_per_s * factor}) for link in graph.links)
    faster = LinkGraph(graph.ranks, graph.switches, links)
    assert wire_bound_s(faster, operation, *degrees, 1) == pytest.approx(one / factor, rel=1e-6)


@settings(max_examples=60)
@given(graphs(ranks=(3, 4, 5), most_switches=4), st.lists(st.integers(-3, 12), min_size=40, max_size=40))
def test_flows_are_exact_however_unlike_the_links(graph: LinkGraph, powers: list[int]) -> None:
    """networkx as the reference; all but the first two ranks send, and pass nothing on."""
    links = [
        link.model_copy(update={"bytes_per_s": link.bytes_per_s * 10.0 ** powers[number % 40]})
        for number, link in enumerate(graph.links)
    ]
    wide = LinkGraph(graph.ranks, graph.switches, tuple(links))
    reference = nx.DiGraph()
    reference.add_nodes_from(["source", "sink"])
    for link in links:
        reference.add_edge(link.source, link.target, capacity=link.bytes_per_s)
    for number, rank in enumerate(graph.ranks):
        reference.remove_edges_from([*(reference.in_edges(rank) if number > 1 else reference.out_edges(rank))])
        reference.add_edge(*(("source", rank) if number > 1 else (rank, "sink")))
    n = len(graph.ranks)
    flow = entering(capacities(wide), (0, 1), tuple(range(2, n)), n)
    assert flow == pytest.approx(nx.maximum_flow_value(reference, "source", "sink"), rel=1e-5)


@given(graphs(ranks=(1, 2, 3, 4, 6, 8, 9, 12), most_switches=4))
def test_levels_hold_every_rank_once_and_have_a_speed_that_links_can_reach(graph: LinkGraph) -> None:
    found = find_levels(graph)
    n = len(graph.ranks)
    assert math.prod(found.sizes) == n
    assert sorted(found.order) == list(range(n))
    assert all(size > 1 for size in found.sizes)
    assert len(found.bytes_per_s) == len(found.sizes)
    most = sum(link.bytes_per_s for link in graph.links)
    assert all(0 < speed <= most for speed in found.bytes_per_s)


@given(graphs(ranks=(4, 6, 8), most_switches=3), st.randoms(use_true_random=False))
def test_the_sizes_of_levels_do_not_depend_on_the_numbering(graph: LinkGraph, chance: object) -> None:
    n = len(graph.ranks)
    numbers = list(range(n))
    chance.shuffle(numbers)  # type: ignore[attr-defined]
    renamed = {str(rank): str(numbers[rank]) for rank in range(n)}
    links = [
        link.model_copy(
            update={"source": renamed.get(link.source, link.source), "target": renamed.get(link.target, link.target)}
        )
        for link in graph.links
    ]
    other = find_levels(LinkGraph(graph.ranks, graph.switches, tuple(reversed(links))))
    found = find_levels(graph)
    assert other.sizes == found.sizes
    assert other.bytes_per_s == pytest.approx(found.bytes_per_s, rel=1e-6)


@st.composite
def built(draw: st.DrawFn) -> tuple[LinkGraph, tuple[int, ...], tuple[float, ...]]:
    """A tree of switches with narrower and narrower links per rank, the ranks numbered at random."""
    sizes = tuple(draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3)))
    share = float(draw(st.integers(50, 400)))
    num_ranks, speeds, ends = math.prod(sizes), [], []
    units = [str(number) for number in draw(st.permutations(range(num_ranks)))]
    for level, size in enumerate(sizes):
        speeds.append(share * num_ranks / len(units))
        switches = [f"s{level}-{number}" for number in range(len(units) // size)]
        ends += [(unit, switches[number // size], speeds[-1]) for number, unit in enumerate(units)]
        units, share = switches, share / draw(st.sampled_from([1.3, 2, 8]))
    links = [Link(source=a, target=b, bytes_per_s=s) for x, y, s in ends for a, b in ((x, y), (y, x))]
    names = tuple(dict.fromkeys(switch for _, switch, _ in ends))
    return LinkGraph(tuple(map(str, range(num_ranks))), names, tuple(links)), sizes, tuple(speeds)


@given(built())
def test_levels_that_were_built_are_found_whatever_the_numbering(
    machine: tuple[LinkGraph, tuple[int, ...], tuple[float, ...]],
) -> None:
    graph, sizes, speeds = machine
    found = find_levels(graph)
    assert found.sizes == sizes
    assert found.bytes_per_s == pytest.approx(speeds, rel=1e-6)
    above = {link.source: link.target for link in graph.links if len(link.target) > 2 and link.source < link.target}
    for first in range(0, len(graph.ranks), sizes[0]):
        assert len({above[str(rank)] for rank in found.order[first : first + sizes[0]]}) == 1
