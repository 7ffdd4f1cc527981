"""What measuring a machine finds, before anything is fitted to it. One measurement is of one process group."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from hw_profiles.schema import Curve, Precision


class Measurement(BaseModel):
    """Numbers of the slowest or fullest rank, taken while all ranks did the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_nodes: PositiveInt
    ranks_per_node: PositiveInt
    logical: bool
    """All ranks are processes on the CPUs of one host."""
    kind: Literal["cuda", "cpu"]
    device_name: str
    memory_bytes: PositiveInt
    reserved_bytes: PositiveInt
    host_memory_bytes: PositiveInt
    num_cores: PositiveInt
    matmul_flop_per_s: dict[Precision, PositiveFloat]
    memory_bytes_per_s: PositiveFloat
    link_bytes_per_s: PositiveFloat
    """Host to device."""
    operator_launch_s: PositiveFloat
    curves: tuple[Curve, ...]
    how: str
    """When, where, and over which transport and interface."""
