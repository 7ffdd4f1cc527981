"""Time of a collective: measured where it was measured, else what its algorithm takes on the levels of the machine.

A curve that was measured for the operation and the kind of group comes first. Where there is none, `modelled_time`
counts, held to how the model does on the measured groups that are most alike.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from costmodels.algorithms import Algorithm
from costmodels.curve import curve_time, rising
from costmodels.engine import Operation
from costmodels.geometry import Geometry, geometry
from costmodels.modelled import ModelledPhase, ModelledTime, known_algorithms, modelled_time
from costmodels.network import CollectiveTime, Network, NetworkCurve

__all__ = ["CollectiveTime", "ModelledPhase", "ModelledTime", "collective_time", "modelled_time"]

_DOUBTED = 2.0
"""A last segment that goes on faster or slower than the model by more than this factor is noise."""
_ALIKE = math.log(1.5)
"""Of sizes whose ratio is less, what a run found for one holds for the other."""


def collective_time(
    operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network
) -> CollectiveTime:
    """Returns the time of one collective in the groups between two degrees, all of them at once.

    A measured curve of that operation and those degrees comes first: exact at its points, interpolated between them;
    below and above, the model held to its ends (then "modelled"). Without one,
    `modelled_time` counts; where the operation was measured in groups of another shape over the same outermost level,
    it tells which message is in the same regime there (where nothing starts up: takes as long), and that curve says how
    long that really is. What a run found for messages of about this size corrects all of it.

    Args:
        operation: What is run.
        degree_from: The group has the ranks of equal r mod degree_from ...
        degree_to: ... inside one block of degree_to ranks.
        message_bytes: The full message before sharding, in bytes.
        network: Levels, curves and algorithms of the machine.

    Raises:
        ValueError: The degrees do not nest, or are no prefix fills of the levels.
    """
    if degree_from == degree_to or message_bytes == 0:
        return CollectiveTime(0.0, "modelled")
    known = _uncorrected(operation, degree_from, degree_to, message_bytes, network)
    near = [
        (abs(math.log(each.message_bytes / message_bytes)), each.factor)
        for each in network.factors
        if (each.operation, each.degree_from, each.degree_to) == (operation, degree_from, degree_to)
    ]
    distance, factor = min(near, default=(math.inf, 1.0))
    return known if distance > _ALIKE else replace(known, seconds=known.seconds * factor)


def _uncorrected(
    operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network
) -> CollectiveTime:
    for curve in network.curves:
        if (curve.operation, curve.degree_from, curve.degree_to) == (operation, degree_from, degree_to):
            return _read_off(curve, message_bytes, network)
    return _likened_time(operation, degree_from, degree_to, message_bytes, network)


def _read_off(curve: NetworkCurve, message_bytes: int, network: Network) -> CollectiveTime:
    """Reads the curve; outside of it, the model says how its end goes on.

    Below, as much less as the model takes less: a curve may begin at 1 GiB. Above, the last segment's bandwidth, within
    a factor of what the model makes of the last point: noise in two points is no bandwidth.
    """
    first, last = curve.points[0][0], curve.points[-1][0]
    found = curve_time(curve.points, message_bytes)
    if first <= message_bytes <= last:
        return found
    end = first if message_bytes < first else last
    modelled_s, at_end_s = (
        modelled_time(curve.operation, curve.degree_from, curve.degree_to, size, network).seconds
        for size in (message_bytes, end)
    )
    held_s = curve_time(curve.points, end).seconds * (modelled_s / at_end_s)
    seconds = held_s
    if message_bytes > last:
        seconds = min(max(found.seconds, held_s / _DOUBTED), held_s * _DOUBTED)
    return CollectiveTime(seconds, "modelled", (curve.degree_from, curve.degree_to))


def _likened_time(
    operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network
) -> CollectiveTime:
    """Models the time, and corrects it by how the model does on the measured groups of the most similar shape."""
    modelled = modelled_time(operation, degree_from, degree_to, message_bytes, network)
    nearest = _nearest_curve(operation, degree_from, degree_to, network)
    if nearest is None:
        return CollectiveTime(modelled.seconds, "modelled")
    likened_to = (nearest.degree_from, nearest.degree_to)
    if modelled.startups_s > 0:
        kind = (operation, degree_from, degree_to, message_bytes, network)
        known = [(_by_regime(nearest, network, each), each) for each in known_algorithms(operation, network)]
        times = [_held_to(held, modelled_time(*kind, each)) for held, each in known if held is not None]
        if times:
            return CollectiveTime(min(times), "modelled", likened_to)
    seconds, points = modelled.seconds, _modelled_and_measured(nearest, network)
    least_s = points[0][0]
    if seconds < least_s:
        return CollectiveTime(points[0][1] * seconds / least_s, "modelled", likened_to)
    return CollectiveTime(curve_time(points, seconds).seconds, "modelled", likened_to)


@dataclass(frozen=True, slots=True)
class _Held:
    """A measured curve by regime: modelled transfer over modelled start-ups."""

    log_regimes: tuple[float, ...]
    log_errors: tuple[float, ...]
    """Of measured over modelled seconds."""
    seconds: tuple[float, ...]
    """Measured; none above a later one."""
    startups_s: float


@lru_cache(maxsize=1024)
def _by_regime(curve: NetworkCurve, network: Network, algorithm: Algorithm) -> _Held | None:
    """Returns the curve by the regime of an algorithm, where it is the fastest; None where nothing starts up.

    Protocols change where transfers outgrow start-ups, which is at another message and after other seconds in groups of
    another shape, but in the same regime. Where the algorithm is never the fastest, all points count.
    """
    kind = (curve.operation, curve.degree_from, curve.degree_to)
    points = rising(curve.points)
    fastest = [point for point in points if modelled_time(*kind, point[0], network).algorithm == algorithm]
    times = [(modelled_time(*kind, size, network, algorithm), seconds) for size, seconds in fastest or points]
    startups_s = times[0][0].startups_s
    if startups_s == 0:
        return None
    return _Held(
        tuple(math.log(time.transfer_s / startups_s) for time, _ in times),
        tuple(math.log(seconds / time.seconds) for time, seconds in times),
        tuple(seconds for _, seconds in times),
        startups_s,
    )


def _held_to(held: _Held, modelled: ModelledTime) -> float:
    """Returns `modelled` with the error that the model has in its regime of the measured curve."""
    log_regime = math.log(modelled.transfer_s / modelled.startups_s)
    error = float(np.interp(log_regime, held.log_regimes, held.log_errors))
    below = bisect_right(held.log_regimes, log_regime)
    # Between two points the model may rise later than its error falls: more bytes are never faster.
    least_s = held.seconds[below - 1] * modelled.startups_s / held.startups_s if below else 0.0
    return max(modelled.seconds * math.exp(error), least_s)


@lru_cache(maxsize=4096)
def _nearest_curve(operation: Operation, degree_from: int, degree_to: int, network: Network) -> NetworkCurve | None:
    """Returns the operation's curve of the most similar groups that span the same outermost level, if there is one."""
    sizes = tuple(level.size for level in network.levels)
    own = geometry(sizes, degree_from, degree_to)
    near = []
    for index, curve in enumerate(network.curves):
        if curve.operation == operation:
            other = geometry(sizes, curve.degree_from, curve.degree_to)
            if other and other[-1].level == own[-1].level:
                near.append((_unlike(own, other), index))
    return network.curves[min(near)[1]] if near else None


def _unlike(own: Sequence[Geometry], other: Sequence[Geometry]) -> float:
    """Returns how unlike two kinds of group are: doublings of units and ranks, and levels that only one spans."""
    units = abs(math.log2(own[-1].units / other[-1].units))
    ranks = abs(math.log2(own[-1].group_size / other[-1].group_size))
    return 2 * units + ranks + abs(len(own) - len(other)) / 2


@lru_cache(maxsize=1024)
def _modelled_and_measured(curve: NetworkCurve, network: Network) -> tuple[tuple[float, float], ...]:
    """Returns the modelled and the measured seconds of a curve's points; points that the model holds equal are one."""
    measured: dict[float, list[float]] = {}
    for size_bytes, seconds in curve.points:
        modelled = modelled_time(curve.operation, curve.degree_from, curve.degree_to, size_bytes, network).seconds
        # Start-ups alone are the same for all small messages, but for the last digits of a float.
        measured.setdefault(float(f"{modelled:.6g}"), []).append(seconds)
    return tuple(sorted((modelled, sum(own) / len(own)) for modelled, own in measured.items()))
