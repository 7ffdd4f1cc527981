"""What a dump of one node's topology says. Values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hw_profiles.links.link_graph import LinkGraph

Vendor = Literal["nvidia", "amd"]


@dataclass(frozen=True, slots=True)
class Nic:
    """A network card as the dump sees it."""

    name: str
    """Its interface (`mlx5_0`), else its column's name (`NIC0`)."""
    relation: str
    """To the GPUs nearest to it: PIX, PXB, PHB, NODE or SYS."""
    gpus: tuple[int, ...]
    """The GPUs that it is nearest to."""
    use: Literal["compute", "other"]
    """`other` stands for storage and management: a card that is farther from every GPU than other cards are."""


@dataclass(frozen=True, slots=True)
class Topology:
    """One node's GPUs and what joins them."""

    vendor: Vendor
    graph: LinkGraph
    """Its ranks are the GPUs by their numbers in the dump's order, from 0."""
    numa_nodes: tuple[int | None, ...]
    """Per GPU; None where the dump does not say."""
    nics: tuple[Nic, ...]
    sources: tuple[str, ...]
    """Where the bandwidths are from: what the dump says, and which facts turn it into bytes per second."""
    warnings: tuple[str, ...]
    """What is assumed because the dump does not say it, and what is odd."""

    @property
    def num_gpus(self) -> int:
        """GPUs of the node."""
        return len(self.graph.ranks)
