"""Tells a full mesh of equal wires from links through switches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from hw_profiles.links.link_graph import LinkGraph

_EQUAL = 0.01


def is_mesh(graph: LinkGraph, ranks: Sequence[str], bytes_per_s: float) -> bool:
    """Tells whether the wires between these ranks alone carry `bytes_per_s` into each, as much from each other one.

    Two ranks are no mesh: with one wire there is nothing that a smaller group would lack.

    Args:
        graph: the wires of a node.
        ranks: of one unit, at least one.
        bytes_per_s: what enters a rank in all.
    """
    if len(ranks) < 3:
        return False
    wires = {(link.source, link.target): link.bytes_per_s for link in graph.links}
    share = bytes_per_s / (len(ranks) - 1)
    return all(abs(wires.get(ends, 0.0) - share) <= _EQUAL * share for ends in permutations(ranks, 2))
