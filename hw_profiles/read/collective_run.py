"""One benchmark run of one collective, as its output says. Values."""

from __future__ import annotations

from dataclasses import dataclass

from hw_profiles.schema import CurvePoint, Operation


@dataclass(frozen=True, slots=True)
class CollectiveRun:
    """All groups of one kind ran the operation at once, on `num_nodes` x `ranks_per_node` ranks."""

    file: str
    operation: Operation
    degree_from: int
    degree_to: int
    """The groups are those between the two degrees."""
    num_nodes: int
    ranks_per_node: int
    device_names: tuple[str, ...]
    """Each once; empty where the output does not name them."""
    points: tuple[CurvePoint, ...]
    transport: str
    """The library, its version and network, where the output's log lines say so."""
    over_sockets: bool
    """The log says that the network is plain sockets."""
    notes: tuple[str, ...]

    @property
    def num_ranks(self) -> int:
        """Ranks that took part, over all groups."""
        return self.num_nodes * self.ranks_per_node
