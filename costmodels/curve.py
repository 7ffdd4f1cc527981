"""Reads the time of a collective off a measured curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from scipy.interpolate import PchipInterpolator

from costmodels.network import CollectiveTime

Points = tuple[tuple[float, float], ...]


def curve_time(points: Points, size: float) -> CollectiveTime:
    """Reads a measured curve: "measured" at its points, "interpolated" between them, "modelled" outside.

    Between points it is a monotone cubic of log seconds over log size: exact for start-ups alone and for bandwidth
    alone, and near both where they meet. A point counts as no slower than a larger one, since disturbance only adds
    time. Below the smallest point its seconds hold; above the largest the last segment's bandwidth goes on.

    Args:
        points: (size, seconds), sorted by size.
        size: where to read it: bytes of a message, or what else the sizes of the points are.

    Source: F. N. Fritsch, J. Butland, SIAM J. Sci. Stat. Comput. 5 (1984), as scipy's PchipInterpolator.
    """
    risen = rising(points)
    (first, first_s), (last, last_s) = risen[0], risen[-1]
    if size < first:
        return CollectiveTime(first_s, "modelled")
    if size > last:
        return CollectiveTime(last_s + (size - last) * _last_s_per_byte(risen), "modelled")
    at = dict(risen).get(size)
    if at is not None:
        return CollectiveTime(at, "measured")
    seconds = math.exp(_interpolator(risen)(math.log(size)))
    return CollectiveTime(min(max(seconds, first_s), last_s), "interpolated")


@lru_cache(maxsize=1024)
def rising(points: Points) -> Points:
    """Returns the points with each as fast as the fastest of those that are as large or larger."""
    fastest_s = math.inf
    found: list[tuple[float, float]] = []
    for size, seconds in reversed(points):
        fastest_s = min(fastest_s, seconds)
        found.append((size, fastest_s))
    return tuple(reversed(found))


@lru_cache(maxsize=1024)
def _interpolator(risen: Points) -> Callable[[float], float]:
    logs = np.log(np.array(risen, dtype=float))
    monotone = PchipInterpolator(logs[:, 0], logs[:, 1])
    return lambda at: float(monotone(at))


def _last_s_per_byte(risen: Sequence[tuple[float, float]]) -> float:
    """Returns the seconds per byte of the last segment."""
    last, last_s = risen[-1]
    before, before_s = risen[-2] if len(risen) > 1 else (0, 0.0)
    # A flat last segment is noise: no link is infinitely fast.
    return (last_s - before_s) / (last - before) or last_s / last
