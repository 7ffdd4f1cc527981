"""Which degrees a hierarchy of levels has: the prefix fills."""

from __future__ import annotations

import math
from collections.abc import Sequence


def legal_degrees(sizes: Sequence[int]) -> tuple[int, ...]:
    """Returns every degree n_1 ... n_(k-1) x f with f | n_k, ascending, 1 and the world size included."""
    degrees = {1}
    inner = 1
    for size in sizes:
        degrees.update(inner * part for part in range(1, size + 1) if size % part == 0)
        inner *= size
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
