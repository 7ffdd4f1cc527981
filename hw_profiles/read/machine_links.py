"""The links of one node: from a JSON that the user has, else from a topology dump."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hw_profiles.errors import ProfileError
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.links.read_links import read_links
from hw_profiles.read.topology import Topology

_PCIE = ("pcie", "host-bridge", "numa-node", "sockets")
"""How the names of vertices that PCIe joins begin."""


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """What joins the ranks of a node."""

    graph: LinkGraph
    file: str
    source: str
    """Of the bandwidths."""
    has_wires: bool
    """NVLink, Infinity Fabric, or links of which only the bandwidth is known."""
    has_pcie: bool
    num_sockets: int
    """That PCIe joins; 0 for a single one."""
    fast_graph: LinkGraph | None = None
    """The graph without PCIe, where it has both: libraries use PCIe between no ranks that faster wires join."""


def node_links(dump: Topology | None, topology: Path | None, links: Path | None) -> NodeLinks | None:
    """Returns the links that the file `links` has, else those of `dump`, which was read from `topology`.

    Raises:
        ProfileError: the file cannot be read, or is of another number of ranks than the dump.
    """
    if links is not None:
        graph = read_links(links)
        if dump is not None and dump.num_gpus != len(graph.ranks):
            raise ProfileError(
                f"{topology} has {dump.num_gpus} GPUs and {links} {len(graph.ranks)} ranks; give files of one machine",
                key="links",
                value=len(graph.ranks),
                expected=str(dump.num_gpus),
            )
        source = f"{links.name}: bandwidths of the links as given there"
        return NodeLinks(graph, links.name, source, has_wires=True, has_pcie=False, num_sockets=0)
    if dump is None or topology is None:
        return None
    graph = dump.graph
    pcie = tuple(switch for switch in graph.switches if switch.startswith(_PCIE))
    fast = LinkGraph(
        graph.ranks,
        tuple(switch for switch in graph.switches if switch not in pcie),
        tuple(link for link in graph.links if link.source not in pcie and link.target not in pcie),
    )
    return NodeLinks(
        graph,
        topology.name,
        "; ".join(dump.sources),
        has_wires=bool(fast.links),
        has_pcie=bool(pcie),
        num_sockets=sum(link.target.startswith("sockets") for link in graph.links),
        fast_graph=fast if fast.links and pcie else None,
    )
