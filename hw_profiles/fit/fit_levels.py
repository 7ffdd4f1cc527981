"""Fits the levels' bandwidths, start-ups and efficiencies to measured curves.

For each operation, what it reaches of each level's links and what it starts up in there are found together, from all
its curves at once: the least sum of the squares of log(modelled / measured), so that a small message counts as much as
a large one, and outliers less (`scipy.optimize.least_squares`, soft L1). The modelled seconds are those of
`costmodels.collectives.modelled_time`. A level's bandwidth is then the best that an operation reaches there, its alpha
the median of the operations', and `efficiency` and `startup` are each operation's part of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.optimize import least_squares

from hw_profiles.fit.asked_of_levels import Asked, Modelled, Numbers, asked_of_levels
from hw_profiles.schema import Algorithm, Curve, Level, Operation

_OUTLIER = 0.1
"""A point that is off by more than this part counts less than its square."""
_HIDDEN = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
"""What is tried for the part of start-ups that hides behind transfers; one for all operations."""
_HOLD = 0.02
"""How hard what no point tells is held to where it began, in units of a point's error."""
_ALIKE = 0.5
"""How hard the levels' start-ups are held to move together: few points tell them apart, and noise should not."""


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
    asked = {
        operation: asked_of_levels(own, levels, algorithms.get(operation, ("port",)))
        for operation in dict.fromkeys(curve.operation for curve in curves)
        if (own := [curve for curve in curves if curve.operation == operation])
    }
    tries = [(hidden, {name: _reached(each, levels, hidden) for name, each in asked.items()}) for hidden in _HIDDEN]
    hidden, found = min(tries, key=lambda each: sum(reached.loss for reached in each[1].values()))
    errors = [error for reached in found.values() for error in reached.errors]
    return Fitted(
        tuple(_level(index, level, found) for index, level in enumerate(levels)),
        tuple(any(index in reached.alpha_s for reached in found.values()) for index in range(len(levels))),
        {name: _rounded(reached.call_s) for name, reached in found.items()},
        hidden,
        median(errors) if errors else 0.0,
    )


def _reached(asked: Asked, levels: Sequence[Level], hidden: float) -> _Reached:
    """Finds the bandwidths and start-ups of one operation on the levels that its points cross."""
    crossed = [at for at in range(len(levels)) if asked.crosses(at)]
    # Inner links begin faster than they were seen: slower than the outer, they would never be let go again.
    rates = [asked.best_bytes_per_s(at) * (1 if at == crossed[-1] else 2) for at in crossed]
    alphas_s = [_first_alpha_s(asked, at, levels[at]) for at in crossed]
    # A call's own time begins as a small part: where all groups are of as few ranks, start-ups explain as much.
    start = np.log([*rates, *alphas_s, min(alphas_s) / 10])

    def modelled(logs: Numbers) -> Modelled:
        values = np.exp(logs)
        all_rates, all_alphas = np.ones(len(levels)), np.zeros(len(levels))
        all_rates[crossed], all_alphas[crossed] = values[: len(crossed)], values[len(crossed) : -1]
        return asked.modelled(all_rates, all_alphas, float(values[-1]), hidden)

    def residuals(logs: Numbers) -> Numbers:
        off = np.log(modelled(logs).seconds / asked.measured_s)
        unlike = np.diff((logs - start)[len(crossed) : -1])
        return np.concatenate([off, _HOLD * (logs - start), _ALIKE * unlike])

    found = least_squares(residuals, start, loss="soft_l1", f_scale=_OUTLIER)
    values, at_best = np.exp(found.x), modelled(found.x)
    return _Reached(
        {at: float(rate) for at, rate in zip(crossed, values, strict=False) if at_best.is_bound_by(at)},
        {at: float(alpha) for at, alpha in zip(crossed, values[len(crossed) : -1], strict=True)},
        float(values[-1]),
        tuple(float(error) for error in abs(at_best.seconds / asked.measured_s - 1)),
        float(found.cost),
    )


def _first_alpha_s(asked: Asked, at: int, level: Level) -> float:
    """Returns where the start-up of a level begins; curves of large messages only tell none, and it stays there."""
    quickest_s = asked.quickest_startup_s(at) * 0.9
    if asked.tells_startups(at) or level.alpha_s == 0:
        return quickest_s
    return min(quickest_s, level.alpha_s)


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
