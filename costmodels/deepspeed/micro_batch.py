"""What stage 3 gathers in one micro-batch, and how much of it is there when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

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


class Window(NamedTuple):
    """What is gathered at one moment, in elements, without persistent parameters."""

    segment: int
    held: int
    """Gathered parameters, and the buffers of joined all-gathers: until its first parameter is asked for, only the
    buffer is there; from then on all its parameters are beside it, until the last one is asked for."""
    arriving: int
    """Of what is held, the all-gathers that nobody has waited for ..."""
    begun: int
    """... and of those, the ones that began in this segment."""


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """What one micro-batch of a steady step gathers, and how much is gathered at each hook."""

    gathers: tuple[Gather, ...]
    windows: tuple[Window, ...]
    with_secondary: tuple[int, ...]
    """Parameters whose secondary shards (hpZ) are there when it begins."""
    made_secondary: tuple[tuple[int, int], ...]
    """(segment, parameter) of the secondary shards that it makes: at each first release."""

    @cached_property
    def window_arrays(self) -> Int64s:
        """A row for each field of `windows`."""
        return np.fromiter(chain.from_iterable(self.windows), np.int64, 4 * len(self.windows)).reshape(-1, 4).T
