"""Finds what is odd in a measurement's numbers, for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from hw_profiles.measure.measurement import Measurement
from hw_profiles.schema import Curve, CurvePoint

_FALLS = 0.1
"""Part by which a larger message may be faster than a smaller one before it is odd: less is noise."""
_NOISY = 0.5
"""Interquartile range over the median from which on a point is noisy."""
_MOST = 5


def find_warnings(measurement: Measurement) -> tuple[str, ...]:
    """Returns warnings of mixed devices, curves that fall where they should rise, and noisy points."""
    falling = [text for curve in measurement.curves for text in _falls(curve)]
    return (*_mixed(measurement), *_few(falling, "curves fall where messages grow"), *_noisy(measurement.curves))


def _mixed(measurement: Measurement) -> list[str]:
    if len(set(measurement.devices)) == 1:
        return []
    parts = []
    for name in sorted(set(measurement.devices)):
        ranks = _runs([rank for rank, device in enumerate(measurement.devices) if device == name])
        memory = measurement.memory_bytes_by_device.get(name)
        parts.append(f"{name}{f' ({memory / 2**30:.0f} GiB)' if memory else ''} on ranks {ranks}")
    return [
        f"the ranks have different devices: {'; '.join(parts)}. The least memory and the slowest speed count for all"
    ]


def _runs(ranks: Sequence[int]) -> str:
    """Returns `0-3, 8`."""
    groups = [list(group) for _, group in groupby(enumerate(ranks), key=lambda pair: pair[1] - pair[0])]
    return ", ".join(str(group[0][1]) if len(group) == 1 else f"{group[0][1]}-{group[-1][1]}" for group in groups)


def _falls(curve: Curve) -> list[str]:
    return [
        f"{_name(curve)}: {_size(after)} take {after.seconds * 1e3:.3g} ms, {1 - after.seconds / before.seconds:.0%} "
        f"less than {_size(before)}"
        for before, after in pairwise(curve.points)
        if after.seconds < before.seconds * (1 - _FALLS) and max(before.spread or 0, after.spread or 0) <= _NOISY
    ]


def _noisy(curves: Sequence[Curve]) -> list[str]:
    points = [(point.spread, curve, point) for curve in curves for point in curve.points if point.spread is not None]
    noisy = [each for each in points if each[0] > _NOISY]
    if not noisy:
        return []
    worst_spread, curve, point = max(noisy, key=lambda each: each[0])
    return [
        f"{len(noisy)} of {len(points)} points are noisy (quartiles more than {_NOISY:.0%} of the median apart); the "
        f"worst is {_name(curve)} at {_size(point)}, {worst_spread:.0%}: is something else running?"
    ]


def _few(texts: Sequence[str], what: str) -> list[str]:
    if len(texts) <= _MOST:
        return [f"{what}: {text}" for text in texts]
    return [*(f"{what}: {text}" for text in texts[:_MOST]), f"{what}: {len(texts) - _MOST} more"]


def _name(curve: Curve) -> str:
    return f"{curve.operation} between {curve.degree_from} and {curve.degree_to}"


def _size(point: CurvePoint) -> str:
    return f"{point.bytes / 2**20:.4g} MiB" if point.bytes >= 1 << 20 else f"{point.bytes / 2**10:.4g} KiB"
