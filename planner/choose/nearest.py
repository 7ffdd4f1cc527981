"""Finds the points of a machine's search space that are most like degrees that are none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costmodels.degrees import strategies
from costmodels.strategy import Strategy

NUM_NEAREST = 3


def nearest(strategy: Strategy, level_sizes: tuple[int, ...]) -> tuple[Strategy, ...]:
    """Returns the few points whose degrees are the fewest doublings away, in the order of the space where equal.

    Args:
        strategy: Four positive degrees that need not nest; where s is p, so it is in what is found.
        level_sizes: The sizes of the machine's levels, inner first.
    """
    gathered_anew = strategy.secondary_degree == strategy.param_degree
    candidates = [
        each for each in strategies(level_sizes) if not gathered_anew or each.secondary_degree == each.param_degree
    ]
    return tuple(sorted(candidates, key=lambda each: _doublings(strategy, each))[:NUM_NEAREST])


def nearest_text(strategy: Strategy, level_sizes: tuple[int, ...]) -> str:
    """Returns the same as options of the command line: `1,8,32, 1,8,16 or 1,16,32`."""
    *first, last = [option_text(each) for each in nearest(strategy, level_sizes)]
    return f"{'; '.join(first)} or {last}" if first else last


def option_text(strategy: Strategy) -> str:
    """Returns a strategy as options of the command line: `1,8,32`, or `32,32,32 --secondary-degree 8`."""
    degrees = ",".join(str(degree) for degree in strategy.degrees)
    if strategy.secondary_degree == strategy.param_degree:
        return degrees
    return f"{degrees} --secondary-degree {strategy.secondary_degree}"


def _doublings(asked: Strategy, other: Strategy) -> float:
    return sum(abs(math.log2(its / mine)) for mine, its in zip(_four(asked), _four(other), strict=True))


def _four(strategy: Strategy) -> Sequence[int]:
    """Degrees below one are illegal too, and nearest to one."""
    four = (strategy.param_degree, strategy.secondary_degree, strategy.grad_degree, strategy.optim_degree)
    return tuple(max(1, degree) for degree in four)
