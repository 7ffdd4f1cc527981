"""The machine as the collectives' cost model sees it: levels of links, and measured curves. Plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from costmodels.algorithms import Algorithm
from costmodels.engine import Operation

Provenance = Literal["measured", "interpolated", "modelled"]
FROM_LEAST_CERTAIN: tuple[Provenance, ...] = ("modelled", "interpolated", "measured")


@dataclass(frozen=True, slots=True)
class NetworkLevel:
    """One level, as `hw_profiles.schema.Level`."""

    size: int
    unit_bytes_per_s: float
    alpha_s: float
    efficiency: tuple[tuple[Operation, float], ...] = ()
    startup: tuple[tuple[Operation, float], ...] = ()
    """What an operation's start-ups take, in units of `alpha_s`; 1 if not given."""
    is_mesh: bool = False
    """Whether each unit has a link of its own to each of the others, so that fewer units have fewer links."""


@dataclass(frozen=True, slots=True)
class NetworkCurve:
    """Measured (bytes, seconds) of one operation over the groups between two degrees, sorted by bytes."""

    operation: Operation
    degree_from: int
    degree_to: int
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class MessageFactor:
    """What runs found messages of one size to take, over what curves and levels say."""

    operation: Operation
    degree_from: int
    degree_to: int
    message_bytes: int
    factor: float


@dataclass(frozen=True, slots=True)
class Network:
    """Levels inner first, and what was measured."""

    levels: tuple[NetworkLevel, ...]
    curves: tuple[NetworkCurve, ...] = ()
    algorithms: tuple[tuple[Operation, tuple[Algorithm, ...]], ...] = ()
    """How each operation is run, the fastest of those given; `port` if none is."""
    calls_s: tuple[tuple[Operation, float], ...] = ()
    """Seconds that a call of an operation takes besides its start-ups; 0 if not given."""
    startups_hidden: float = 0.0
    """Part of the lesser of start-ups and transfer that hides behind the greater, from 0 to 1."""
    factors: tuple[MessageFactor, ...] = ()

    @property
    def world_size(self) -> int:
        """Product of the levels' sizes."""
        size = 1
        for level in self.levels:
            size *= level.size
        return size


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """One rank's part of its node's host, with all ranks of the node at once."""

    link_bytes_per_s: float
    """Between host and device, one direction."""
    memory_bytes_per_s: float
    """What the rank's processor cores read and write of the host's memory."""


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """What the compute and step models need of a device."""

    matmul_flop_per_s: float
    memory_bytes_per_s: float
    operator_launch_s: float
    overlap: float
    host: HostSpeed | None = None
    """None: not known, so that nothing can be offloaded to it."""


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Seconds of one collective, all groups of its kind running at once, and how they are known."""

    seconds: float
    provenance: Provenance
    likened_to: tuple[int, int] | None = None
    """The degrees between which curves were measured that the model was held to, if any."""
