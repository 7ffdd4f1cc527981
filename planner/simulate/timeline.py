"""One optimizer step of one rank, played through: what ran when on its two streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from costmodels.communication import CAUSES, ByCause
from costmodels.compute import NS_PER_S
from costmodels.engine import Cause, Message
from costmodels.schedule import Work


class Event(NamedTuple):
    """A stretch of compute or one message, in nanoseconds since its part began."""

    stream: Literal["compute", "communication"]
    what: Work | Cause
    """What is computed, or what a message is for."""
    blocks: tuple[int, ...]
    """Indices into `Workload.blocks`; none: of the whole model."""
    start_ns: int
    end_ns: int
    message: Message | None = None

    @property
    def duration_ns(self) -> int:
        """Nanoseconds from start to end."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class TimelinePart:
    """A micro-batch, or what comes after the last one; nothing is under way when it begins and when it ends."""

    name: Literal["micro-batch", "update"]
    repeats: int
    """So many of it, one after the other."""
    duration_ns: int
    """Of one of it."""
    compute_ns: int
    """Of one of it: what it would take if nothing had to be waited for."""
    exposed: ByCause
    """Of one of it: duration less compute, by what the messages were for that kept compute waiting, or slow."""
    events: tuple[Event, ...]
    """In order of their starts."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """All parts of an optimizer step, in order."""

    parts: tuple[TimelinePart, ...]

    @property
    def step_ns(self) -> int:
        """Nanoseconds of the step."""
        return sum(part.repeats * part.duration_ns for part in self.parts)

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return self.step_ns / NS_PER_S

    @property
    def compute_ns(self) -> int:
        """Nanoseconds of the step that compute takes alone."""
        return sum(part.repeats * part.compute_ns for part in self.parts)

    @property
    def communication_ns(self) -> int:
        """Nanoseconds that all messages take, each alone."""
        return sum(
            part.repeats * event.duration_ns
            for part in self.parts
            for event in part.events
            if event.stream == "communication"
        )

    @property
    def exposed(self) -> ByCause:
        """Nanoseconds of the step beyond compute; its total and `compute_ns` are the step."""
        return ByCause(
            *(sum(part.repeats * getattr(part.exposed, f"{cause}_ns") for part in self.parts) for cause in CAUSES)
        )
