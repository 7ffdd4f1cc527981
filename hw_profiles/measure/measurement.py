"""What measuring a machine finds, before anything is fitted to it. One measurement is of one process group."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from hw_profiles.devices import Precision
from hw_profiles.measure.structure import Structure
from hw_profiles.schema import Curve, Link, Pair


class Measurement(BaseModel):
    """Numbers of the slowest or fullest rank, taken while all ranks did the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    structure: Structure
    logical: bool
    """All ranks are processes on the CPUs of one host."""
    kind: Literal["cuda", "cpu"]
    devices: tuple[str, ...]
    """Each rank's device."""
    memory_bytes: PositiveInt
    memory_bytes_by_device: dict[str, PositiveInt] = {}
    reserved_bytes: PositiveInt
    host_memory_bytes: PositiveInt
    num_cores: PositiveInt
    """Cores of a host that its ranks may run on."""
    matmul_flop_per_s: dict[Precision, PositiveFloat]
    attention_flop_per_s: dict[Precision, PositiveFloat] = {}
    """Operations counted as if every token saw every other."""
    memory_bytes_per_s: PositiveFloat
    link_bytes_per_s: PositiveFloat
    """Host to device."""
    operator_launch_s: PositiveFloat
    overlap: float
    """Part of a message that runs beside compute."""
    curves: tuple[Curve, ...]
    pairs: tuple[Pair, ...] = ()
    links: tuple[Link, ...] = ()
    """The wires inside a node, by its topology."""
    links_source: str = ""
    transport: str
    how: str
    """When, where, and with what."""
    warnings: tuple[str, ...] = ()
    """What was odd while measuring; what is odd in the numbers is found when they are fitted."""

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one node."""
        return self.structure.edges[self.structure.node_level]

    @property
    def num_nodes(self) -> int:
        """Nodes of the machine."""
        return self.structure.edges[-1] // self.ranks_per_node
