"""Time of a collective: measured where it was measured, else what its algorithm takes on the levels of the machine.

A curve that was measured for the operation and the kind of group comes first. Where there is none, the algorithms that
the machine is known to use (`costmodels.algorithms` has their formulas; `port`, the least that any can take, where none
is known) are run on the levels' bandwidths, efficiencies and start-ups, and the fastest counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from costmodels.algorithms import Algorithm, Load, loads
from costmodels.curve import curve_time
from costmodels.engine import Operation
from costmodels.geometry import Geometry, geometry
from costmodels.network import CollectiveTime, Network, NetworkCurve, NetworkLevel

__all__ = ["CollectiveTime", "ModelledPhase", "ModelledTime", "collective_time", "modelled_time"]

_DOUBTED = 2.0
"""A last segment that goes on faster or slower than the model by more than this factor is noise."""


@dataclass(frozen=True, slots=True)
class ModelledPhase:
    """One phase of an algorithm: what decides how long it takes."""

    slowest: Load
    """The load on the level that takes the longest."""
    bandwidth_s: float
    """Seconds that this level's links need for it."""


@dataclass(frozen=True, slots=True)
class ModelledTime:
    """What a collective takes by an algorithm: its phases in turn, and start-ups."""

    algorithm: Algorithm
    phases: tuple[ModelledPhase, ...]
    startups_s: float
    hidden_s: float
    """Of the lesser of both, what hides behind the greater."""

    @property
    def seconds(self) -> float:
        """Seconds of the collective."""
        return sum(phase.bandwidth_s for phase in self.phases) + self.startups_s - self.hidden_s


def collective_time(
    operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network
) -> CollectiveTime:
    """Returns the time of one collective in the groups between two degrees, all of them at once.

    A measured curve of that operation and those degrees comes first: exact at its points, interpolated between them;
    below and above, the model held to its ends (then "modelled"). Without one,
    `modelled_time` counts; where the operation was measured in groups of another shape over the same outermost level,
    it tells which message takes as long there, and that curve says how long that really is.

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
    seconds = modelled_time(operation, degree_from, degree_to, message_bytes, network).seconds
    nearest = _nearest_curve(operation, degree_from, degree_to, network)
    if nearest is None:
        return CollectiveTime(seconds, "modelled")
    points = _modelled_and_measured(nearest, network)
    likened_to = (nearest.degree_from, nearest.degree_to)
    least_s = points[0][0]
    if seconds < least_s:
        return CollectiveTime(points[0][1] * seconds / least_s, "modelled", likened_to)
    return CollectiveTime(curve_time(points, seconds).seconds, "modelled", likened_to)


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


def modelled_time(
    operation: Operation,
    degree_from: int,
    degree_to: int,
    message_bytes: float,
    network: Network,
    algorithm: Algorithm | None = None,
) -> ModelledTime:
    """Returns what the fastest of the network's algorithms for the operation takes, whatever was measured.

    Args:
        operation: As for `collective_time`.
        degree_from: As for `collective_time`.
        degree_to: As for `collective_time`.
        message_bytes: As for `collective_time`.
        network: As for `collective_time`.
        algorithm: This one, whichever the network's are.

    Raises:
        ValueError: As for `collective_time`, or the algorithm cannot run the operation.
    """
    spanned = geometry(tuple(level.size for level in network.levels), degree_from, degree_to)
    known = (
        (algorithm,) if algorithm else next((each for name, each in network.algorithms if name == operation), ("port",))
    )
    times = [_by(each, operation, spanned, message_bytes, network) for each in known]
    return min(times, key=lambda time: time.seconds)


def _by(
    algorithm: Algorithm,
    operation: Operation,
    spanned: Sequence[Geometry],
    message_bytes: float,
    network: Network,
) -> ModelledTime:
    levels = network.levels
    phases = []
    startups_s = dict(network.calls_s).get(operation, 0.0)
    for on_levels in loads(algorithm, operation, spanned, message_bytes):
        timed = [
            ModelledPhase(
                load, load.entering_bytes / _rate(levels[load.geometry.level], operation, load.geometry.units)
            )
            for load in on_levels
        ]
        if timed:
            phases.append(max(timed, key=lambda phase: phase.bandwidth_s))
            startups_s += _startups_s(on_levels, operation, levels)
    hidden_s = network.startups_hidden * min(sum(phase.bandwidth_s for phase in phases), startups_s)
    return ModelledTime(algorithm, tuple(phases), startups_s, hidden_s)


def _startups_s(on_levels: Sequence[Load], operation: Operation, levels: Sequence[NetworkLevel]) -> float:
    """Returns the start-ups of one phase over its levels, the quickest of its ways."""
    alphas = [_alpha_s(levels[load.geometry.level], operation) for load in on_levels]
    num_ways = len(on_levels[0].startups)
    return min(
        sum(load.startups[way] * alpha_s for load, alpha_s in zip(on_levels, alphas, strict=True))
        for way in range(num_ways)
    )


@lru_cache(maxsize=256)
def _rate(level: NetworkLevel, operation: Operation, units: int) -> float:
    """Returns the bytes per second into one unit that the operation reaches in groups that span `units` of them."""
    links = (units - 1) / (level.size - 1) if level.is_mesh else 1.0
    return level.unit_bytes_per_s * links * dict(level.efficiency).get(operation, 1.0)


@lru_cache(maxsize=256)
def _alpha_s(level: NetworkLevel, operation: Operation) -> float:
    return level.alpha_s * dict(level.startup).get(operation, 1.0)
