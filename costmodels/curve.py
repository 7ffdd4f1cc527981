"""Reads the time of a collective off a measured curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from costmodels.network import CollectiveTime


def curve_time(points: Sequence[tuple[int, float]], message_bytes: int) -> CollectiveTime:
    """Reads a measured curve; a point counts as no slower than a larger one, since disturbance only ever adds time."""
    fastest_s = math.inf
    rising: list[tuple[int, float]] = []
    for size_bytes, seconds in reversed(points):
        fastest_s = min(fastest_s, seconds)
        rising.insert(0, (size_bytes, fastest_s))
    if message_bytes <= rising[0][0]:
        return CollectiveTime(rising[0][1], "measured" if message_bytes == rising[0][0] else "interpolated")
    for (low, low_s), (high, high_s) in pairwise(rising):
        if message_bytes == high:
            return CollectiveTime(high_s, "measured")
        if message_bytes < high:
            # Linear in bytes, because start-up plus bytes over bandwidth is; a log-log line would lie above it.
            return CollectiveTime(low_s + (high_s - low_s) * (message_bytes - low) / (high - low), "interpolated")
    return CollectiveTime(_beyond_s(rising, message_bytes), "modelled")


def _beyond_s(rising: Sequence[tuple[int, float]], message_bytes: int) -> float:
    """Extends a curve above its largest point with the last segment's bandwidth."""
    last, last_s = rising[-1]
    before, before_s = rising[-2] if len(rising) > 1 else (0, 0.0)
    s_per_byte = (last_s - before_s) / (last - before)
    if s_per_byte == 0.0:
        # A flat last segment is noise: no link is infinitely fast.
        s_per_byte = last_s / last
    return last_s + (message_bytes - last) * s_per_byte
