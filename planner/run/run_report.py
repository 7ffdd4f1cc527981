"""What a run did, beside what was predicted: the contract's `run --json`, and `run.json` in the plan's folder."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, field_serializer, field_validator

from planner.plan import Predicted


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RunStep(_Frozen):
    """One optimizer step."""

    loss: float
    """Mean over the global batch; not a number where it was not finite (null in JSON)."""
    seconds: float
    """Of the slowest rank."""

    @field_validator("loss", mode="before")
    @classmethod
    def _read_loss(cls, value: Any) -> Any:
        return math.nan if value is None else value

    @field_serializer("loss", when_used="json")
    def _write_loss(self, value: float) -> float | None:
        return value if math.isfinite(value) else None


class MemoryFigures(_Frozen):
    """Bytes of device memory on the fullest rank."""

    peak_bytes: int
    """In a steady step."""
    at_rest_bytes: int
    init_peak_bytes: int
    """While the model and the engine are built."""


class TrafficFigure(_Frozen):
    """All messages of one operation over one kind of group, per rank and optimizer step."""

    operation: str
    degree_from: int
    degree_to: int
    bytes: int
    count: int


class Figures(_Frozen):
    """What is both predicted and measured."""

    step_s: float
    """Measured: median of the steps in which nothing was recorded."""
    memory: MemoryFigures
    traffic: tuple[TrafficFigure, ...]
    """Sorted by operation and degrees."""


class RunReport(_Frozen):
    """A finished run."""

    steps: tuple[RunStep, ...]
    measured: Figures
    predicted: Figures
    warnings: tuple[str, ...] = ()


def predicted_figures(predicted: Predicted) -> Figures:
    """Returns the part of a prediction that a run measures."""
    rows = (
        TrafficFigure(**row.model_dump(include=set(TrafficFigure.model_fields)))
        for row in sorted(predicted.traffic, key=lambda row: (row.operation, row.degree_from, row.degree_to))
    )
    return Figures(
        step_s=predicted.step_s,
        memory=MemoryFigures(**predicted.memory.model_dump(include=set(MemoryFigures.model_fields))),
        traffic=tuple(rows),
    )
