"""What a verification found: traced and real figures side by side, and whether each pair is as close as it must be."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from costmodels.strategy import Precision


class Comparison(BaseModel):
    """One figure, traced and real."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """`saved_bytes`, `forward_flop`, ...: its unit is the last word."""
    traced: int
    real: int
    tolerance: float
    """The greatest difference allowed, relative to the real figure; 0 asks for equality."""
    is_promised: bool = True
    """False for a figure that is shown and not promised: it holds what no trace can see."""

    @property
    def ratio(self) -> float:
        """Traced over real; 1 where both are 0."""
        if self.traced == self.real:
            return 1.0
        return self.traced / self.real if self.real else float("inf")

    @property
    def holds(self) -> bool:
        """Whether the difference is within the tolerance."""
        return abs(self.traced - self.real) <= self.tolerance * abs(self.real)


class Verification(BaseModel):
    """A traced step beside a real one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The class of the module."""
    precision: Precision
    autocast: Literal["bf16", "fp16"] | None
    recompute: bool
    micro_batch_size: int
    sequence_length: int | None
    traced_by: str
    """Which way made the graph; what a fallback gives need not hold."""
    loss_eager: float
    loss_replayed: float | None
    """Of the emitted graph with the real weights; None where the graph lacks a value, as `notes` then says."""
    loss_tolerance: float
    comparisons: tuple[Comparison, ...]
    trace_s: float
    real_s: float
    """Seconds of the measured real step."""
    warnings: tuple[str, ...] = ()
    """What the trace assumed."""
    notes: tuple[str, ...] = ()
    """What these figures cannot show."""

    @property
    def loss_difference(self) -> float | None:
        """The replayed loss minus the eager one, relative to the eager one."""
        if self.loss_replayed is None:
            return None
        return abs(self.loss_replayed - self.loss_eager) / max(abs(self.loss_eager), 1e-12)

    @property
    def loss_holds(self) -> bool:
        """Whether the replayed loss is the eager one; two that are no number are."""
        difference = self.loss_difference
        return difference is not None and (difference <= self.loss_tolerance or difference != difference)

    @property
    def holds(self) -> bool:
        """Whether every promised figure is within its tolerance, and the replayed loss."""
        return self.loss_holds and all(c.holds for c in self.comparisons if c.is_promised)

    def figure(self, name: str) -> Comparison:
        """Returns the comparison of that name."""
        return next(comparison for comparison in self.comparisons if comparison.name == name)
