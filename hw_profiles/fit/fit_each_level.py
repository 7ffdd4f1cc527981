"""Fits each level to the curves of the groups that have one rank in each of its units."""

from __future__ import annotations

from collections.abc import Sequence

from hw_profiles.fit.fit_levels import Fitted
from hw_profiles.schema import Curve, Level, Operation

_MESSAGES_PER_HOP: dict[Operation, int] = {"all_reduce": 2}
"""Twice the bytes and start-ups of a reduce-scatter, which all others have at most."""
_WHOLE_MESSAGE: tuple[Operation, ...] = ("reduce", "broadcast")
"""Operations that pass all bytes into each unit; the others leave out what a unit has."""


def fit_each_level(levels: Sequence[Level], curves: Sequence[Curve]) -> Fitted:
    """Returns the levels, each with the best bandwidth and the least start-up that an operation reached over it."""
    found, told, inner = [], [], 1
    for level in levels:
        own = [curve for curve in curves if (curve.degree_from, curve.degree_to) == (inner, inner * level.size)]
        found.append(_level(level, own, inner) if own else level)
        told.append(bool(own))
        inner *= level.size
    return Fitted(tuple(found), tuple(told), 0.0)


def _level(level: Level, curves: Sequence[Curve], inner: int) -> Level:
    reached = {curve.operation: _bytes_per_s(curve, level.size, inner) for curve in curves}
    best = max(reached.values())
    startup = min(_least_s(curve) / ((level.size - 1) * _MESSAGES_PER_HOP.get(curve.operation, 1)) for curve in curves)
    efficiency = {operation: rate / best for operation, rate in reached.items()}
    return level.model_copy(update={"unit_bytes_per_s": best, "alpha_s": startup, "efficiency": efficiency})


def _bytes_per_s(curve: Curve, units: int, groups: int) -> float:
    """Returns the bytes per second that entered one unit, over all `groups` that share it, on the largest messages."""
    large = curve.points[-1]
    part = 1.0 if curve.operation in _WHOLE_MESSAGE else (units - 1) / units
    entering = groups * part * _MESSAGES_PER_HOP.get(curve.operation, 1) * large.bytes
    # Less the start-up, unless noise made some smaller message as slow as the large one.
    small_s = _least_s(curve)
    return entering / (large.seconds - small_s if large.seconds > small_s else large.seconds)


def _least_s(curve: Curve) -> float:
    """Returns the seconds of its fastest point: the smallest message's, but for what disturbed that one."""
    return min(point.seconds for point in curve.points)
