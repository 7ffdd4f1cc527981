"""The hardware profile: what is known of a machine, and where each number is from. SI units."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

Operation = Literal["all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all"]
Precision = Literal["bf16", "fp16", "fp32"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Device(_Frozen):
    """One rank's accelerator (or its share of the CPUs)."""

    name: str
    kind: Literal["cuda", "cpu"]
    """`cuda` stands for ROCm too, as in torch."""
    memory_bytes: PositiveInt
    """What the device has."""
    reserved_bytes: NonNegativeInt
    """Of it, what a process cannot use for tensors: context, communicators, what the driver keeps."""
    peak_flop_per_s: dict[Precision, PositiveFloat]
    """Vendor's dense peak; the denominator of MFU."""
    matmul_flop_per_s: dict[Precision, PositiveFloat]
    """What large matrix products reach."""
    memory_bytes_per_s: PositiveFloat
    operator_launch_s: NonNegativeFloat
    """Host time per operator: a segment takes at least this times its number of operators."""
    overlap: NonNegativeFloat
    """Part of communication that can run beside compute: 1 on devices with copy engines, 0 where ranks compute and
    communicate with the same cores."""


class Host(_Frozen):
    """One node's host."""

    memory_bytes: PositiveInt
    link_bytes_per_s: PositiveFloat
    """Host to device, one direction, per device with all devices at once."""


class Level(_Frozen):
    """One layer of the hierarchy: `size` units of the level below (ranks for the innermost), joined by links."""

    name: str
    size: PositiveInt
    unit_bytes_per_s: PositiveFloat
    """Bytes per second that can enter one unit (one rank at the innermost level, one node at the level above nodes),
    one direction, over all its links of this level."""
    alpha_s: NonNegativeFloat
    """Seconds per start-up of a message over this level."""
    efficiency: dict[Operation, PositiveFloat] = {}
    """Part of `unit_bytes_per_s` that an operation reaches on large messages; 1 where not given."""


class CurvePoint(_Frozen):
    """Seconds of one collective of `bytes` (the full message, before sharding)."""

    bytes: PositiveInt
    seconds: PositiveFloat


class Curve(_Frozen):
    """Measured seconds of an operation over one kind of group, all groups of that kind running at once."""

    operation: Operation
    degree_from: PositiveInt
    degree_to: PositiveInt
    points: tuple[CurvePoint, ...]


class HardwareProfile(_Frozen):
    """A machine. `levels` inner first; the product of their sizes is the number of ranks."""

    schema_version: Literal[1] = 1
    name: str
    description: str
    device: Device
    host: Host
    levels: tuple[Level, ...]
    """The last level's size is the default number of its units; `--nodes` replaces it."""
    node_level: NonNegativeInt
    """Index of the outermost level inside a node: ranks per node is the product of sizes up to and with it."""
    curves: tuple[Curve, ...] = ()
    sources: dict[str, str]
    """Where each number is from: a dotted path (`device.memory_bytes`, `levels.0`) to a text. A path covers all below
    it; every number of the profile must be covered."""

    @property
    def world_size(self) -> int:
        """Ranks of the whole machine."""
        size = 1
        for level in self.levels:
            size *= level.size
        return size

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one node."""
        size = 1
        for level in self.levels[: self.node_level + 1]:
            size *= level.size
        return size
