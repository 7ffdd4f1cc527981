"""The partitions into clusters of equal size that a graph of near units singles out."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

Partition = tuple[tuple[int, ...], ...]
"""Units by their numbers; each group ascending, groups by their first unit."""


def clusters(near: nx.Graph[int]) -> Iterator[Partition]:
    """Yields every proper partition of the units into clusters of equal size that `near` singles out.

    Cliques: a clique of g units lies whole inside the g-truss of the graph (the most of it in which each edge is in
    g - 2 triangles or more). Where every component of the g-truss has exactly g units, each is a clique, they are all
    cliques of that size that there are, and the partition is the only one. A ring of 8, which could be cut into pairs
    in two ways, has none: what the wires do not single out is no cluster.

    Components: where all have one size.

    Source: J. Cohen, Trusses: Cohesive subgraphs for social network analysis, 2008 (the k-truss).
    """
    num_units = len(near)
    parts = components(near)
    are_cliques = 2 * near.number_of_edges() == sum(len(part) * (len(part) - 1) for part in parts)
    most = 0 if are_cliques else 1 + min(degree for _, degree in near.degree())
    for size in range(2, min(num_units // 2, most) + 1):
        if num_units % size == 0:
            cliques = components(nx.k_truss(near, size))
            if len(cliques) * size == num_units and all(len(clique) == size for clique in cliques):
                yield cliques
    if 1 < len(parts) < num_units and len({len(part) for part in parts}) == 1:
        yield parts


def components(near: nx.Graph[int]) -> Partition:
    """Returns the units that reach each other, as a partition."""
    return tuple(sorted(tuple(sorted(part)) for part in nx.connected_components(near)))
