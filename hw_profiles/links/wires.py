"""A graph of links as numbers: what any two ranks exchange alone, and what can enter a unit of ranks at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from hw_profiles.links.flow import Matrix, capacities, entering, pair_bandwidths
from hw_profiles.links.link_graph import LinkGraph, Unit
from hw_profiles.links.scales import Scale, scales
from hw_profiles.links.switch_layers import switch_layers


@dataclass(frozen=True, slots=True, eq=False)
class Wires:
    """Matrices of bytes per second, a row per source and a column per target."""

    matrix: Matrix
    """Of the links; ranks before switches."""
    between: Matrix
    """What two ranks exchange alone, less of the two directions; ranks only."""
    scales: tuple[Scale, ...]
    """Of `between`, fastest first."""
    layers: tuple[tuple[Unit, ...], ...]
    """Partitions of the ranks by the switches that they are behind, finer first."""
    is_measured_alone: bool
    """The links of a rank may share a wire."""

    @property
    def num_ranks(self) -> int:
        """Ranks of the graph."""
        return len(self.between)

    def entering_bytes_per_s(self, unit: Unit, others: Unit) -> float:
        """Returns what `others` can send into `unit` together, over links and switches."""
        return entering(self.matrix, unit, others, self.num_ranks)

    def near(self, units: Sequence[Unit], scale: Scale) -> nx.Graph[int]:
        """Returns the graph of `units`, an edge where some rank of one and some of the other reach at least `scale`."""
        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(len(units)))
        unit_of = np.full(self.num_ranks, -1)
        for number, unit in enumerate(units):
            unit_of[list(unit)] = number
        for source, target in np.argwhere(np.triu(self.between >= scale.slowest_bytes_per_s)):
            one, other = int(unit_of[source]), int(unit_of[target])
            if one != other and min(one, other) >= 0:
                graph.add_edge(one, other)
        return graph


def wires_of(graph: LinkGraph) -> Wires:
    """Returns `graph` as numbers."""
    matrix = capacities(graph)
    between = pair_bandwidths(matrix, len(graph.ranks))
    found = scales(between[np.triu_indices(len(between), 1)].tolist())
    return Wires(matrix, between, found, switch_layers(graph), graph.measured_alone)
