"""What measured points ask of every level, as arrays: so that a fit can model all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodels.algorithms import Algorithm, Load, loads
from costmodels.geometry import geometry
from hw_profiles.schema import Curve, Level

Numbers = NDArray[np.float64]

_BINDING = 0.25
"""A level's links tell something of themselves where they are at least this part of a point's seconds."""
_STARTING = 0.5
"""Start-ups show where the links are busy for less than this part of a point's seconds."""
_TIE = 1e-6


@dataclass(frozen=True, slots=True)
class Modelled:
    """What a machine takes for every point."""

    seconds: Numbers
    bound: NDArray[np.bool_]
    """By point and level: whether its links are a good part of the point's seconds."""

    def is_bound_by(self, level: int) -> bool:
        """Tells whether any point says something of a level's links."""
        return bool(self.bound[:, level].any())


@dataclass(frozen=True, slots=True)
class Asked:
    """One operation's points. An algorithm that may run it is a way; ways with fewer phases have empty ones."""

    measured_s: Numbers
    """By point."""
    entering_bytes: Numbers
    """By way, phase, point and level."""
    startups: Numbers
    """By way, phase, manner of starting up, point and level."""

    def crosses(self, level: int) -> bool:
        """Tells whether any point's group spans a level."""
        return bool((self.startups[..., level] > 0).any())

    def best_bytes_per_s(self, level: int) -> float:
        """Returns the most that entered a unit of the level in a second, of all points."""
        return float((self.entering_bytes[0, :, :, level].max(axis=0) / self.measured_s).max())

    def quickest_startup_s(self, level: int) -> float:
        """Returns the least seconds of a point for each of its start-ups, of those that cross the level."""
        crossing = (self.startups[0, :, 0, :, level] > 0).any(axis=0)
        hops = np.maximum(self.startups[0, :, 0].sum(axis=(0, 2)), 1)
        return float((self.measured_s / hops)[crossing].min())

    def tells_startups(self, level: int) -> bool:
        """Tells whether any point that crosses the level takes much longer than its bytes need at the best rate."""
        crossing = (self.startups[0, :, 0, :, level] > 0).any(axis=0)
        links_s = self.entering_bytes[0, :, :, level].max(axis=0) / self.best_bytes_per_s(level)
        return bool((links_s < _STARTING * self.measured_s)[crossing].any())

    def modelled(self, rates: Numbers, alphas_s: Numbers, call_s: float, hidden: float) -> Modelled:
        """Returns every point's seconds by its fastest way, as `costmodels.collectives.modelled_time`.

        Args:
            rates: bytes per second into one unit, by level.
            alphas_s: seconds per start-up, by level.
            call_s: seconds of a call besides.
            hidden: part of the lesser of start-ups and transfer that hides behind the greater.
        """
        # Of levels that are as slow the outer one counts, or none would be told apart from where the fit begins.
        of_levels = self.entering_bytes / rates * (1 + _TIE * np.arange(len(rates)))
        links_s = of_levels.max(axis=3).sum(axis=1)
        starting_s = call_s + (self.startups @ alphas_s).min(axis=2).sum(axis=1)
        seconds = links_s + starting_s - hidden * np.minimum(links_s, starting_s)
        way, points = seconds.argmin(axis=0), np.arange(len(self.measured_s))
        chosen = seconds[way, points]
        slowest = of_levels == of_levels.max(axis=3, keepdims=True)
        part = np.where(slowest, of_levels, 0.0)[way, :, points].max(axis=1)
        return Modelled(chosen, part > _BINDING * chosen[:, None])


def asked_of_levels(curves: Sequence[Curve], levels: Sequence[Level], algorithms: Sequence[Algorithm]) -> Asked:
    """Returns what the points of one operation's curves ask of levels of these sizes, by each of the algorithms."""
    sizes = tuple(level.size for level in levels)
    points = [
        tuple(
            loads(each, curve.operation, geometry(sizes, curve.degree_from, curve.degree_to), point.bytes)
            for each in algorithms
        )
        for curve in curves
        for point in curve.points
    ]
    measured_s = np.array([point.seconds for curve in curves for point in curve.points])
    num_phases = max(len(way) for ways in points for way in ways)
    num_manners = max(len(load.startups) for load in _all_loads(points))
    shape = (len(algorithms), num_phases, len(points), len(sizes))
    entering, startups = np.zeros(shape), np.zeros((*shape[:2], num_manners, *shape[2:]))
    for number, ways in enumerate(points):
        for way, phases in enumerate(ways):
            for phase, on_levels in enumerate(phases):
                for load in on_levels:
                    at = load.geometry.level
                    # In a mesh, a group over fewer units has fewer of the links.
                    links = (load.geometry.units - 1) / (sizes[at] - 1) if levels[at].is_mesh else 1.0
                    entering[way, phase, number, at] = load.entering_bytes / links
                    # A phase with one manner has it in the place of each.
                    startups[way, phase, :, number, at] = np.resize(load.startups, num_manners)
    return Asked(measured_s, entering, startups)


def _all_loads(points: Sequence[tuple[tuple[tuple[Load, ...], ...], ...]]) -> list[Load]:
    return [load for ways in points for way in ways for phase in way for load in phase]
