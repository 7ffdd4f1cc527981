"""Published bus bandwidths, beside what the shipped machine and the collective model give."""

from __future__ import annotations

from dataclasses import dataclass

from decoder import published

from costmodels.collectives import collective_time
from costmodels.engine import Operation
from hw_profiles.load import load
from planner.machine import machine

TABLE = published()["bus_bandwidths"]
BY_SIZE = published()["all_reduce_by_size"]
SWEPT = ("dgx-a100-80gb", "dgx-h200")


@dataclass(frozen=True)
class BusBandwidth:
    """A row of published.json with its prediction; bytes per second."""

    machine: str
    num_nodes: int
    operation: Operation
    degree_from: int
    degree_to: int
    message_bytes: int
    published: float
    source: str

    @property
    def predicted(self) -> float:
        """The model's, by nccl-tests doc/PERFORMANCE.md."""
        network = machine(load(self.machine, self.num_nodes), "fp16").network
        time = collective_time(self.operation, self.degree_from, self.degree_to, self.message_bytes, network)
        size = self.degree_to // self.degree_from
        factors = {"all_reduce": 2 * (size - 1) / size, "reduce": 1.0, "broadcast": 1.0}
        return self.message_bytes / time.seconds * factors.get(self.operation, (size - 1) / size)


def rows() -> tuple[BusBandwidth, ...]:
    """Returns all of them, in the order of the file."""
    return tuple(
        BusBandwidth(name, int(nodes), operation, int(inner), int(outer), int(size), float(gigabytes) * 1e9, source)
        for name, nodes, operation, inner, outer, size, gigabytes, source in TABLE["rows"]
    )


def sweep(name: str) -> tuple[BusBandwidth, ...]:
    """Returns the all-reduce of one node at every published size, smallest first."""
    return tuple(
        BusBandwidth(
            name, 1, "all_reduce", 1, 8, int(BY_SIZE["first_bytes"]) << index, float(gigabytes) * 1e9, BY_SIZE["source"]
        )
        for index, gigabytes in enumerate(BY_SIZE[name])
    )
