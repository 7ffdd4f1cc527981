"""A JSON of links is read as it is written, and refused with the place of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest

from hw_profiles.errors import ProfileError
from hw_profiles.links.find_levels import find_levels
from hw_profiles.links.read_links import read_links
from hw_profiles.schema import Link


def written(folder: Path, content: object) -> Path:
    path = folder / "links.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_wire_between_two_is_two_links_and_counts_multiply(tmp_path: Path) -> None:
    content = {"ranks": 2, "links": [{"between": [0, 1], "bytes_per_s": 25e9, "count": 2}], "description": "a pair"}
    graph = read_links(written(tmp_path, content))
    assert (graph.ranks, graph.switches) == (("0", "1"), ())
    assert graph.links == (
        Link(source="0", target="1", bytes_per_s=50e9),
        Link(source="1", target="0", bytes_per_s=50e9),
    )


def test_directions_may_differ_and_names_are_numbered_in_the_order_of_the_file(tmp_path: Path) -> None:
    content = {
        "ranks": ["b", "a"],
        "switches": ["s"],
        "links": [
            {"from": "b", "to": "s", "bytes_per_s": 1e9},
            {"from": "s", "to": "b", "bytes_per_s": 2e9},
            {"between": ["a", "s"], "bytes_per_s": 3e9},
        ],
    }
    graph = read_links(written(tmp_path, content))
    assert (graph.ranks, graph.switches) == (("0", "1"), ("s",))
    assert graph.links[:2] == (
        Link(source="0", target="s", bytes_per_s=1e9),
        Link(source="s", target="0", bytes_per_s=2e9),
    )


@pytest.mark.parametrize("is_directed", [False, True])
def test_a_graph_of_networkx_is_read(is_directed: bool, tmp_path: Path) -> None:
    made = nx.DiGraph() if is_directed else nx.Graph()
    made.add_node("nvswitch", switch=True)
    for rank in range(4):
        made.add_edge(rank, "nvswitch", bytes_per_s=100e9)
        if is_directed:
            made.add_edge("nvswitch", rank, bytes_per_s=100e9)
    graph = read_links(written(tmp_path, nx.node_link_data(made, edges="edges")))
    assert (graph.ranks, graph.switches, len(graph.links)) == (("0", "1", "2", "3"), ("nvswitch",), 8)
    assert find_levels(graph).sizes == (4,)


PAIR = {"between": [0, 1], "bytes_per_s": 1e9}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not JSON.*line 1"),
        ("[" * 100_000, "nested too deep"),
        ("1" * 5000, "number that is too long"),
        ({"ranks": 2, "links": [PAIR | {"bytes_per_s": 300}]}, r"links\.0\.bytes_per_s: 300 .*is it in GB/s"),
        ("[]", "no JSON object"),
        ('{"ranks": 2, "ranks": 2}', "'ranks' stands twice"),
        ({}, "ranks: Field required"),
        ({"ranks": 0}, "ranks: .*greater than 0"),
        ({"ranks": True}, "ranks: .*valid integer"),
        ({"ranks": 10**9}, "ranks: .*less than or equal to 1024"),
        ({"ranks": 2, "wires": []}, "wires: .*not permitted"),
        ({"ranks": 2, "links": 5}, "links: "),
        ({"ranks": 2, "links": [{"between": [0, 1]}]}, r"links\.0\.bytes_per_s: Field required"),
        ({"ranks": 2, "links": [PAIR | {"bytes_per_s": -1}]}, r"links\.0\.bytes_per_s: .*greater than 0"),
        ('{"ranks": 2, "links": [{"between": [0, 1], "bytes_per_s": 1e999}]}', r"links\.0\.bytes_per_s: .*finite"),
        ({"ranks": 2, "links": [PAIR | {"count": 0}]}, r"links\.0\.count"),
        ({"ranks": 2, "links": [PAIR | {"from": 0, "to": 1}]}, r"links\.0: give either"),
        ({"ranks": 2, "links": [{"from": 0, "bytes_per_s": 1e9}]}, r"links\.0: give either"),
        ({"ranks": 2, "links": [PAIR | {"between": [0, 2]}]}, r"links\.0 \(0 to 2\): '2' is neither"),
        ({"ranks": 2, "links": [PAIR | {"between": [1, 1]}]}, r"links\.0 \(1 to 1\): both ends"),
        ({"ranks": 2, "links": [PAIR, PAIR]}, r"links\.1 \(0 to 1\): .*count"),
        ({"ranks": ["a", "a"]}, "two vertices have the name 'a'"),
        ({"ranks": ["a", "b"], "switches": ["1"]}, "two vertices have the name '1'"),
        ({"ranks": 2}, "2 parts .*ranks 0; 1"),
        ({"ranks": 2, "links": [{"from": 0, "to": 1, "bytes_per_s": 1e9}]}, "both directions"),
        ({"nodes": 3}, 'needs "nodes"'),
        ({"nodes": [{"name": 0}], "edges": []}, 'needs "nodes"'),
        ({"nodes": [{"id": 0}, {"id": 1}], "edges": [{"source": 0, "target": 1}]}, r"links\.0\.bytes_per_s: Field"),
        ({"nodes": [{"id": 0}, {"id": 1}], "edges": [3]}, r"links\.0"),
    ],
)
def test_what_is_no_graph_is_refused_with_its_place(content: object, named: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ProfileError, match=f"(?s){named}") as caught:
        read_links(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot read the links"):
        read_links(tmp_path / "none.json")
