"""The wires of one node that a profile knows, as a graph."""

from __future__ import annotations

from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.schema import HardwareProfile


def node_graph(profile: HardwareProfile) -> LinkGraph:
    """Returns the profile's links as a graph of the ranks of one node; what is no rank's number is a switch.

    Raises:
        ProfileError: two links join the same vertices in one direction.
    """
    ranks = tuple(str(rank) for rank in range(profile.ranks_per_node))
    ends = dict.fromkeys(vertex for link in profile.links for vertex in (link.source, link.target))
    return LinkGraph(ranks, tuple(vertex for vertex in ends if vertex not in ranks), profile.links)
