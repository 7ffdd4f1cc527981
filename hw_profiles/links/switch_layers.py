"""The groups of ranks behind the same switches, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from hw_profiles.links.link_graph import LinkGraph, Unit


def switch_layers(graph: LinkGraph) -> tuple[tuple[Unit, ...], ...]:
    """Returns partitions of the ranks, finer before coarser: ranks that switches join up to one layer after the other.

    A switch's layer is its distance from the nearest rank. Two steps per layer: first its switches with what hangs on
    them, then with the links between switches of that layer as well (two boards, two sockets). Links between ranks are
    left out, as are partitions that join nothing or everything. The groups of one partition may differ in size.
    """
    if not graph.switches:
        return ()
    wires: nx.Graph[str] = nx.Graph()
    wires.add_nodes_from((*graph.ranks, *graph.switches))
    wires.add_edges_from((link.source, link.target) for link in graph.links)
    found = (_joined(graph, wires.edge_subgraph(edges)) for edges in _growing(graph, wires))
    return tuple(parts for parts in dict.fromkeys(found) if 1 < len(parts) < len(graph.ranks))


def _growing(graph: LinkGraph, wires: nx.Graph[str]) -> Iterator[list[tuple[str, str]]]:
    """Yields the links of more and more layers."""
    layer: dict[str, int] = nx.multi_source_dijkstra_path_length(wires, list(graph.ranks))
    ranks = frozenset(graph.ranks)
    edges = [(a, b) for a, b in wires.edges if not (a in ranks and b in ranks) and a in layer and b in layer]
    for most in range(1, max(layer.values()) + 1):
        within = [(a, b) for a, b in edges if max(layer[a], layer[b]) <= most]
        yield [(a, b) for a, b in within if min(layer[a], layer[b]) < most]
        yield within


def _joined(graph: LinkGraph, wires: nx.Graph[str]) -> tuple[Unit, ...]:
    place = {rank: index for index, rank in enumerate(graph.ranks)}
    parts = [sorted(place[v] for v in part if v in place) for part in nx.connected_components(wires)]
    alone = [[index] for rank, index in place.items() if rank not in wires]
    return tuple(sorted(tuple(part) for part in [*parts, *alone] if part))
