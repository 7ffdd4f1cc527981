"""How the groups between two degrees lie over the levels of a machine.

A group between degrees a and b (a | b) has n = b/a ranks. At level l, with S_l ranks in a unit of it:

    u_l = units of level l that the group spans inside one unit of level l+1
    r_l = u_1 ... u_(l-1), ranks of the group inside one unit of level l
    q_l = S_l / r_l, groups that share one unit's links, since all groups of a kind run at once
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Geometry:
    """How the groups between two degrees lie over one level that they span."""

    level: int
    """Index into `Network.levels`."""
    units: int
    """u: units of the level that one group spans inside the next."""
    groups: int
    """q: groups that run at once through one unit's links."""
    group_ranks: int
    """r: ranks of one group inside one unit."""
    group_size: int
    """n: ranks of one group."""

    @property
    def stages(self) -> int:
        """k: stages of a binary tree over the units."""
        return math.ceil(math.log2(self.units))


def geometry(sizes: Sequence[int], degree_from: int, degree_to: int) -> tuple[Geometry, ...]:
    """Returns how the groups between two degrees lie over the levels that they span, inner first.

    Raises:
        ValueError: The degrees do not nest, or are no prefix fills of `sizes`.
    """
    spans = _spans(sizes, degree_from, degree_to)
    spanned = []
    unit_ranks = group_ranks = 1
    for index, (size, units) in enumerate(zip(sizes, spans, strict=False)):
        if units > 1:
            spanned.append(Geometry(index, units, unit_ranks // group_ranks, group_ranks, math.prod(spans)))
        unit_ranks *= size
        group_ranks *= units
    return tuple(spanned)


def _spans(sizes: Sequence[int], degree_from: int, degree_to: int) -> tuple[int, ...]:
    """Returns u_l of each level for the groups between two degrees."""
    spans = []
    inner, outer = degree_from, degree_to
    for size in sizes:
        skipped, filled = math.gcd(inner, size), math.gcd(outer, size)
        if filled % skipped or (skipped != size and inner != skipped) or (filled != size and outer != filled):
            break
        spans.append(filled // skipped)
        inner //= skipped
        outer //= filled
    if inner != 1 or outer != 1:
        raise ValueError(f"no groups between degrees {degree_from} and {degree_to} on levels of sizes {list(sizes)}")
    return tuple(spans)
