"""A graph of links: ranks and switches, joined by wires of known bandwidth. A value; nothing is computed here."""

from __future__ import annotations

from dataclasses import dataclass

from hw_profiles.errors import ProfileError
from hw_profiles.schema import Link

Unit = tuple[int, ...]
"""Ranks by their places in `LinkGraph.ranks`, ascending."""


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Vertices and directed wires; parallel wires are one `Link` with their bandwidths summed."""

    ranks: tuple[str, ...]
    """Vertices that compute, in the order of ranks."""
    switches: tuple[str, ...]
    """Vertices that only pass messages on: NVSwitch, PCIe switches, host bridges."""
    links: tuple[Link, ...]
    """Each direction of a wire is a link of its own."""
    measured_alone: bool = False
    """True where a link is no wire but what one pair of ranks reached while all others were silent: several links of a
    rank may then share one wire, and their sum says nothing."""

    def __post_init__(self) -> None:
        vertices = (*self.ranks, *self.switches)
        known = set(vertices)
        if len(known) != len(vertices) or not self.ranks:
            raise ProfileError(f"a graph of links needs ranks, and each vertex once: {', '.join(vertices) or 'none'}")
        seen: set[tuple[str, str]] = set()
        for link in self.links:
            ends = (link.source, link.target)
            for vertex in ends:
                if vertex not in known:
                    raise ProfileError(f"a link between {ends[0]} and {ends[1]}: {vertex} is no vertex of the graph")
            if link.source == link.target or ends in seen:
                raise ProfileError(
                    f"a link from {ends[0]} to {ends[1]}: each pair of vertices once, no vertex to itself"
                )
            seen.add(ends)
