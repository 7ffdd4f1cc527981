"""What a run did, beside what was predicted: the contract's `run --json`, and `run.json` in the plan's folder."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator

from costmodels.engine import Operation
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


class TimedMessage(_Frozen):
    """A message that the step sends, timed by itself."""

    operation: Operation
    degree_from: int
    degree_to: int
    bytes: int
    """The full message, before sharding."""
    count: int
    """Of this size in a step."""
    seconds: float
    """Of the slowest rank, all groups of the kind at once."""
    spread: float
    """Interquartile range of the timings over their median."""


class TimedApart(_Frozen):
    """What a run with `--calibrate` timed beside its steps."""

    compute_s: tuple[float, ...] = Field(min_length=1)
    """Of some steps, without the waiting for messages; the mean of the ranks."""
    messages: tuple[TimedMessage, ...]


class RunReport(_Frozen):
    """A finished run."""

    steps: tuple[RunStep, ...]
    measured: Figures
    predicted: Figures
    warnings: tuple[str, ...] = ()
    apart: TimedApart | None = Field(default=None, exclude_if=lambda value: value is None)
    """Compute and messages by themselves, where a run was asked to calibrate."""


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
