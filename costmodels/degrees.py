"""The search space of degrees: which exist on a machine, which nest, and all strategies of a world in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from costmodels.strategy import Strategy


def legal_degrees(level_sizes: Sequence[int]) -> tuple[int, ...]:
    """Returns the prefix fills of a hierarchy, ascending: d = n_1 ... n_{k-1} x f with f dividing n_k.

    Args:
        level_sizes: n_1 ... n_L, inner first; their product is the world size.

    Source: the search space that AMSP (arXiv 2311.00257, section IV) restricts to whole units of each level.
    """
    degrees = {1}
    filled = 1
    for size in level_sizes:
        degrees.update(filled * part for part in range(1, size + 1) if size % part == 0)
        filled *= size
    return tuple(sorted(degrees))


def fill(sizes: Sequence[int], degree: int) -> tuple[int, ...] | None:
    """Returns how many units of each level a contiguous group of `degree` ranks fills, inner first.

    None when `degree` is no prefix fill of `sizes`.
    """
    filled = []
    left = degree
    for size in sizes:
        part = math.gcd(left, size)
        if part != size and left != part:
            return None
        filled.append(part)
        left //= part
    return tuple(filled) if left == 1 else None


def nested_pairs(degrees: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Returns every (a, b) of `degrees` with a | b and a < b: the kinds of group a collective can run in."""
    return tuple((a, b) for b in degrees for a in degrees if a < b and b % a == 0)


def divisors(number: int) -> tuple[int, ...]:
    """Returns the divisors of a positive number, ascending."""
    small = [part for part in range(1, math.isqrt(number) + 1) if number % part == 0]
    return tuple(small + [number // part for part in reversed(small) if part * part != number])


def nests(param_degree: int, grad_degree: int, optim_degree: int, world_size: int) -> bool:
    """Returns whether p | g | o | N, or the relaxation g | p | o | N (gradients sharded less than parameters)."""
    return why_not_nested(param_degree, grad_degree, optim_degree, world_size) is None


def why_not_nested(param_degree: int, grad_degree: int, optim_degree: int, world_size: int) -> str | None:
    """Returns the first reason, for people, why (p, g, o) do not nest in the world; None when they do."""
    named = (("param", param_degree), ("grad", grad_degree), ("optim", optim_degree))
    for name, degree in named:
        if degree < 1 or world_size % degree:
            return (
                f"{name} degree: {degree} does not divide {world_size} ranks; legal degrees are "
                f"{_listed(divisors(world_size))}"
            )
    for name, degree in named[:2]:
        if optim_degree % degree:
            return f"{name} degree {degree} does not divide the optim degree {optim_degree}; use p | g | o | N"
    if grad_degree % param_degree and param_degree % grad_degree:
        return f"neither of param degree {param_degree} and grad degree {grad_degree} divides the other"
    return None


def why_illegal(strategy: Strategy, level_sizes: tuple[int, ...]) -> str | None:
    """Returns why a strategy's degrees are no point of a machine's search space, or None when they are one.

    Args:
        strategy: its four degrees are looked at, nothing else.
        level_sizes: the sizes of the machine's levels, inner first.
    """
    reason = why_not_nested(*strategy.degrees, math.prod(level_sizes)) or why_not_secondary(strategy)
    if reason:
        return reason
    legal = legal_degrees(level_sizes)
    for name in ("param", "secondary", "grad", "optim"):
        degree = getattr(strategy, f"{name}_degree")
        if degree not in legal:
            return (
                f"{name} degree: {degree} ranks do not fill whole units of the levels {_listed(level_sizes)}; "
                f"legal degrees are {_listed(legal)}"
            )
    return None


def why_not_secondary(strategy: Strategy) -> str | None:
    """Returns why the secondary degree does not go with the param degree, or None: s must divide p."""
    param_degree, secondary_degree = strategy.param_degree, strategy.secondary_degree
    if secondary_degree < 1 or param_degree % secondary_degree:
        return (
            f"secondary degree {secondary_degree} does not divide the param degree {param_degree}; legal are "
            f"{_listed(divisors(param_degree))} (1: kept from forward, {param_degree}: gathered anew)"
        )
    return None


def strategies(level_sizes: tuple[int, ...], *, relaxed: bool = True) -> tuple[Strategy, ...]:
    """Returns every strategy of the machine, least sharded first: ascending (p, s, g, o), each s that divides p.

    Args:
        level_sizes: the sizes of the machine's levels, inner first.
        relaxed: also those with g < p, where gradients accumulate less sharded than parameters (PaRO "ING").
    """
    return tuple(_strategies(legal_degrees(level_sizes), math.prod(level_sizes), relaxed))


def _strategies(legal: tuple[int, ...], world_size: int, relaxed: bool) -> Iterator[Strategy]:
    for param_degree in legal:
        secondary = [degree for degree in legal if param_degree % degree == 0]
        chains = [
            (grad_degree, optim_degree)
            for grad_degree in legal
            for optim_degree in legal
            if (relaxed or grad_degree >= param_degree) and nests(param_degree, grad_degree, optim_degree, world_size)
        ]
        for secondary_degree in secondary:
            for grad_degree, optim_degree in chains:
                yield Strategy(param_degree, secondary_degree, grad_degree, optim_degree)


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
