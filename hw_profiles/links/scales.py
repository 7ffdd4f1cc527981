"""The scales of bandwidth in a graph: values so near each other that noise may be all that tells them apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GAP = 1.25
"""Neighbouring values further apart than this factor are of two scales. Two measurements of one bandwidth with 10 % of
noise each way differ by at most 1.1 / 0.9 = 1.23; counts of equal wires (1, 2, 4) by 2, and a wire from a slot of the
next older generation by 2."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A range of bandwidths, bytes per second."""

    slowest_bytes_per_s: float
    fastest_bytes_per_s: float


def scales(bandwidths: Iterable[float]) -> tuple[Scale, ...]:
    """Returns the scales of the values above zero, fastest first."""
    found: list[Scale] = []
    for value in sorted((value for value in bandwidths if value > 0), reverse=True):
        if found and found[-1].slowest_bytes_per_s <= value * GAP:
            found[-1] = Scale(value, found[-1].fastest_bytes_per_s)
        else:
            found.append(Scale(value, value))
    return tuple(found)
