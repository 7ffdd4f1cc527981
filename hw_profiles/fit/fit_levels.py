"""Fits the levels' bandwidths, start-ups and efficiencies to measured curves.

For each operation, what it reaches of each level's links and what it starts up in there are found together, from all
its curves at once: the least sum of the squares of log(modelled / measured), so that a small message counts as much as
a large one, and outliers less (`scipy.optimize.least_squares`, soft L1). The modelled seconds are those of
`costmodels.collectives.modelled_time`. A level's bandwidth is then the best that an operation reaches there, its alpha
the median of the operations', and `efficiency` and `startup` are each operation's part of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.optimize import least_squares

from costmodels.algorithms import Load, loads
from costmodels.geometry import geometry
from hw_profiles.schema import Algorithm, Curve, Level, Operation

_OUTLIER = 0.1
"""A point that is off by more than this part counts less than its square."""
_HIDDEN = (0.0, 0.25, 0.5, 0.75, 1.0)
"""What is tried for the part of start-ups that hides behind transfers; one for all operations."""
_HOLD = 0.02
"""How hard what no point tells is held to where it began, in units of a point's error."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Levels with what the curves say of them."""

    levels: tuple[Level, ...]
    told: tuple[bool, ...]
    """Per level: whether any curve crosses it; the others keep the numbers that they came with."""
    calls_s: dict[Operation, float]
    """Seconds that a call of each operation takes besides its start-ups."""
    startups_hidden: float
    """Part of the lesser of start-ups and transfer that hides behind the greater."""
    median_error: float
    """Of the model's seconds against the points it was fitted to, relative."""


@dataclass(frozen=True, slots=True)
class _Point:
    """One measured point: what each algorithm asks of the levels, and the seconds it took."""

    ways: tuple[tuple[tuple[Load, ...], ...], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Reached:
    """What one operation reaches, by level."""

    bytes_per_s: dict[int, float]
    """Of the levels that some point was bound by."""
    alpha_s: dict[int, float]
    call_s: float
    errors: tuple[float, ...]
    loss: float


def fit_levels(
    levels: Sequence[Level], curves: Sequence[Curve], algorithms: Mapping[Operation, tuple[Algorithm, ...]]
) -> Fitted:
    """Returns the levels with the numbers that explain `curves` best, run by `algorithms`.

    Args:
        levels: inner first: names and sizes, and the numbers that stay where no curve tells.
        curves: measured seconds, all groups of a kind at once.
        algorithms: how each operation is run; `port` if not given.
    """
    sizes = tuple(level.size for level in levels)
    points: dict[Operation, list[_Point]] = {}
    for curve in curves:
        own = _points(curve, sizes, algorithms.get(curve.operation, ("port",)))
        points.setdefault(curve.operation, []).extend(own)
    tries = [
        (hidden, {name: _reached(of_one, levels, hidden) for name, of_one in points.items() if of_one})
        for hidden in _HIDDEN
    ]
    hidden, found = min(tries, key=lambda each: sum(reached.loss for reached in each[1].values()))
    errors = [error for reached in found.values() for error in reached.errors]
    return Fitted(
        tuple(_level(index, level, found) for index, level in enumerate(levels)),
        tuple(any(index in reached.alpha_s for reached in found.values()) for index in range(len(levels))),
        {name: _rounded(reached.call_s) for name, reached in found.items()},
        hidden,
        median(errors) if errors else 0.0,
    )


def _points(curve: Curve, sizes: tuple[int, ...], algorithms: Sequence[Algorithm]) -> list[_Point]:
    spanned = geometry(sizes, curve.degree_from, curve.degree_to)
    return [
        _Point(tuple(loads(each, curve.operation, spanned, point.bytes) for each in algorithms), point.seconds)
        for point in curve.points
        if spanned
    ]


def _reached(points: Sequence[_Point], levels: Sequence[Level], hidden: float) -> _Reached:
    """Finds the bandwidths and start-ups of one operation on the levels that its points cross."""
    crossed = sorted({load.geometry.level for point in points for way in point.ways for phase in way for load in phase})
    alphas_s = [_first_alpha_s(points, at) / 2 for at in crossed]
    start = np.log([*(levels[at].unit_bytes_per_s for at in crossed), *alphas_s, min(alphas_s)])

    def seconds_of(point: _Point, logs: np.ndarray) -> tuple[float, frozenset[int]]:
        values = np.exp(logs)
        rates = dict(zip(crossed, values, strict=False))
        alphas = dict(zip(crossed, values[len(crossed) : -1], strict=True))
        return min(
            (_seconds(way, rates, alphas, float(values[-1]), hidden) for way in point.ways), key=lambda each: each[0]
        )

    def residuals(logs: np.ndarray) -> np.ndarray:
        off = [math.log(seconds_of(point, logs)[0] / point.seconds) for point in points]
        return np.concatenate([off, _HOLD * (logs - start)])

    found = least_squares(residuals, start, loss="soft_l1", f_scale=_OUTLIER)
    logs = found.x
    bound = frozenset().union(*(seconds_of(point, logs)[1] for point in points))
    values = np.exp(logs)
    return _Reached(
        {at: float(rate) for at, rate in zip(crossed, values, strict=False) if at in bound},
        {at: float(alpha) for at, alpha in zip(crossed, values[len(crossed) : -1], strict=True)},
        float(values[-1]),
        tuple(abs(seconds_of(point, logs)[0] / point.seconds - 1) for point in points),
        float(found.cost),
    )


def _first_alpha_s(points: Sequence[_Point], at: int) -> float:
    """Returns a first guess at a start-up: the quickest point's share of one hop."""
    return min(
        point.seconds / max(1, sum(load.startups[0] for phase in point.ways[0] for load in phase))
        for point in points
        if any(load.geometry.level == at for phase in point.ways[0] for load in phase)
    )


def _seconds(
    way: Sequence[Sequence[Load]], rates: Mapping[int, float], alphas: Mapping[int, float], call_s: float, hidden: float
) -> tuple[float, frozenset[int]]:
    """Returns an algorithm's seconds, and the levels whose links are a good part of them."""
    startups_s = call_s
    slowest: list[tuple[float, int]] = []
    for phase in way:
        slowest.append(max((load.entering_bytes / rates[load.geometry.level], load.geometry.level) for load in phase))
        startups_s += min(
            sum(load.startups[kind] * alphas[load.geometry.level] for load in phase)
            for kind in range(len(phase[0].startups))
        )
    links_s = sum(seconds for seconds, _ in slowest)
    total_s = links_s + startups_s - hidden * min(links_s, startups_s)
    return total_s, frozenset(at for seconds, at in slowest if seconds > _BINDING * total_s)


_BINDING = 0.25
"""A level's links tell something of themselves where they are at least this part of a point's seconds."""


def _level(index: int, level: Level, found: Mapping[Operation, _Reached]) -> Level:
    rates = {name: reached.bytes_per_s[index] for name, reached in found.items() if index in reached.bytes_per_s}
    alphas = {name: reached.alpha_s[index] for name, reached in found.items() if index in reached.alpha_s}
    if not alphas:
        return level
    best = max(rates.values(), default=level.unit_bytes_per_s)
    alpha_s = median(alphas.values())
    return level.model_copy(
        update={
            "unit_bytes_per_s": _rounded(best),
            "alpha_s": _rounded(alpha_s),
            "efficiency": {name: _rounded(rate / best) for name, rate in rates.items()},
            "startup": {name: _rounded(own_s / alpha_s) for name, own_s in alphas.items()},
        }
    )


def _rounded(value: float) -> float:
    """Four digits: more would be noise."""
    return float(f"{value:.4g}")
