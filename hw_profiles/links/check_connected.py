"""Refuses a graph of links in which some rank cannot reach another."""

from __future__ import annotations

import networkx as nx

from hw_profiles.errors import ProfileError
from hw_profiles.links.link_graph import LinkGraph

_MOST_NAMED = 16


def check_connected(graph: LinkGraph, where: str = "the graph of links") -> None:
    """Does nothing where every rank reaches every other, over links and switches in their directions.

    Args:
        graph: what is checked.
        where: what the graph is from, for the message.

    Raises:
        ProfileError: with the ranks of each part.
    """
    wires: nx.DiGraph[str] = nx.DiGraph()
    wires.add_nodes_from(graph.ranks)
    wires.add_edges_from((link.source, link.target) for link in graph.links)
    place = {rank: index for index, rank in enumerate(graph.ranks)}
    parts = sorted(
        sorted(place[vertex] for vertex in part if vertex in place) for part in nx.strongly_connected_components(wires)
    )
    parts = [part for part in parts if part]
    if len(parts) == 1:
        return
    named = "; ".join(_names(graph, part) for part in parts[:_MOST_NAMED])
    more = f"; and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    raise ProfileError(
        f"{where} falls into {len(parts)} parts that do not reach each other in both directions: ranks {named}{more}. "
        "Add the links that join them (over PCIe, between sockets), each direction",
        key="links",
        value=len(parts),
        expected="one connected graph",
    )


def _names(graph: LinkGraph, part: list[int]) -> str:
    names = [graph.ranks[index] for index in part]
    return ", ".join(names[:_MOST_NAMED]) + (
        f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    )
