"""What is known of a rank's device and of its host. SI units."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

Precision = Literal["bf16", "fp16", "fp32"]


class Frozen(BaseModel):
    """What all parts of a profile have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Device(Frozen):
    """One rank's accelerator (or its share of the CPUs)."""

    name: str
    kind: Literal["cuda", "cpu"]
    """`cuda` stands for ROCm too, as in torch."""
    memory_bytes: PositiveInt
    """What the device has."""
    reserved_bytes: NonNegativeInt
    """Of it, what a process cannot use for tensors: context, communicators, what the driver keeps."""
    peak_flop_per_s: dict[Precision, PositiveFloat]
    """Vendor's dense peak; the denominator of MFU. A precision that the device lacks has no entry."""
    matmul_flop_per_s: dict[Precision, PositiveFloat]
    """What large matrix products reach."""
    memory_bytes_per_s: PositiveFloat
    operator_launch_s: NonNegativeFloat
    """Host time per operator: a segment takes at least this times its number of operators."""
    overlap: float = Field(ge=0, le=1)
    """Part of communication that can run beside compute: 1 on devices with copy engines, 0 where ranks compute and
    communicate with the same cores."""
    attention_flop_per_s: dict[Precision, PositiveFloat] = {}
    """What fused attention reaches, where it was measured."""

    @model_validator(mode="after")
    def _leaves_room_for_tensors(self) -> Self:
        if self.reserved_bytes >= self.memory_bytes:
            raise ValueError(f"reserved_bytes {self.reserved_bytes} must be less than memory_bytes {self.memory_bytes}")
        if sorted(self.peak_flop_per_s) != sorted(self.matmul_flop_per_s) or not self.peak_flop_per_s:
            raise ValueError("peak_flop_per_s and matmul_flop_per_s must have the same precisions, at least one")
        return self


class UnknownDevice(Frozen):
    """A rank's accelerator of which no figure is known: what a topology dump leaves open."""

    name: str
    kind: Literal["cuda", "cpu"]


DEVICE_TAGS = ("known", "unknown")
"""What pydantic puts into the place of an error in `device`, which no file has."""


def whether_known(device: object) -> str:
    """Returns the tag of a device, as a value or as it stands in a file."""
    if isinstance(device, UnknownDevice) or (isinstance(device, dict) and device.keys() <= {"name", "kind"}):
        return "unknown"
    return "known"


class Host(Frozen):
    """One node's host."""

    memory_bytes: PositiveInt
    link_bytes_per_s: PositiveFloat
    """Host to device, one direction, per device with all devices at once."""
    memory_bytes_per_s: PositiveFloat | None = None
    """What all cores together read and write of its memory; None: at least what all links take from it at once."""
    num_cores: PositiveInt | None = None
    """Cores that ranks compute on, where ranks are processes on CPUs; not needed for accelerators."""
