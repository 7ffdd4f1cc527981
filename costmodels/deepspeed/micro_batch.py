"""What stage 3 gathers in one micro-batch, and how much of it is there when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from costmodels.places import Int64s
from costmodels.workload import Phase


class Gather(NamedTuple):
    """Parameters gathered together."""

    parameters: tuple[int, ...]
    secondary: bool
    """From the secondary partition (hpZ), over its group."""
    phase: Phase
    segment: int
    fetch: int
    """How many fetches come before the one at which it begins."""


@dataclass(frozen=True, eq=False)
class Windows:
    """What is gathered at each moment, in elements, without persistent parameters; thousands of moments, so arrays."""

    segments: Int64s
    held: Int64s
    """Gathered parameters, and the buffers of joined all-gathers: until its first parameter is asked for, only the
    buffer is there; from then on all its parameters are beside it, until the last one is asked for."""
    arriving: Int64s
    """Of what is held, the all-gathers that nobody has waited for ..."""
    begun: Int64s
    """... and of those, the ones that began in this segment."""


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """What one micro-batch of a steady step gathers, and how much is gathered at each hook."""

    gathers: tuple[Gather, ...]
    windows: Windows
    with_secondary: tuple[int, ...]
    """Parameters whose secondary shards (hpZ) are there when it begins."""
    made_secondary: tuple[tuple[int, int], ...]
    """(segment, parameter) of the secondary shards that it makes: at each first release."""
