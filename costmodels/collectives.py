"""Time of a collective: measured where it was measured, else the port model over the levels of the machine.

The port model asks of each level how many bytes must enter one unit of it, summed over the groups that run there at
once, and divides by what the unit's links carry. The slowest level decides; start-ups come on top. For a group between
degrees a and b (a | b), with S_l ranks in a unit of level l:

    u_l = units of level l that the group spans inside one unit of level l+1
    r_l = u_1 ... u_(l-1), ranks of the group inside one unit of level l
    q_l = S_l / r_l, groups that share one unit's links

Source: design of the project; start-ups as the ring and tree latencies of NCCL 2.10 src/graph/tuning.cc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sympy import Expr, Symbol

from costmodels.curve import curve_time
from costmodels.engine import Operation
from costmodels.lower import Formula, lower
from costmodels.network import CollectiveTime, Network, NetworkLevel

__all__ = ["ENTERING_BYTES", "CollectiveTime", "LevelLoad", "collective_time", "level_loads", "port_time"]


def _whole(name: str) -> Symbol:
    return Symbol(name, integer=True, positive=True)  # type: ignore[no-untyped-call]


MESSAGE_BYTES, UNITS, GROUPS, GROUP_RANKS, GROUP_SIZE = (_whole(name) for name in ("B", "u", "q", "r", "n"))
"""B: message bytes. u: units of a level that a group spans. q: groups sharing one unit's links. r: ranks of a group in
one unit. n: ranks of a group."""

_OUTSIDE = (UNITS - 1) / UNITS
_ENTERING: dict[Operation, Expr] = {
    "all_gather": GROUPS * MESSAGE_BYTES * _OUTSIDE,
    "reduce_scatter": GROUPS * MESSAGE_BYTES * _OUTSIDE,
    "all_reduce": 2 * GROUPS * MESSAGE_BYTES * _OUTSIDE,
    # A pipelined chain passes the whole message through every unit.
    "reduce": GROUPS * MESSAGE_BYTES,
    "broadcast": GROUPS * MESSAGE_BYTES,
    # Each of the unit's r ranks gets B/n from each of the r(u-1) ranks in the neighbouring units.
    "all_to_all": GROUPS * GROUP_RANKS * MESSAGE_BYTES * GROUP_RANKS * (UNITS - 1) / GROUP_SIZE,
}
_ARGUMENTS = (MESSAGE_BYTES, UNITS, GROUPS, GROUP_RANKS, GROUP_SIZE)

ENTERING_BYTES: dict[Operation, Formula] = {
    operation: Formula(
        name=f"bytes into one unit, {operation}",
        expression=expression,
        arguments=_ARGUMENTS,
        unit="bytes",
        source="ring algorithms: (n-1)/n of the message enters each member, twice for an all-reduce (nccl-tests "
        "doc/PERFORMANCE.md); with units for members, since a unit needs each byte once",
    )
    for operation, expression in _ENTERING.items()
}
"""Bytes that enter one unit of a level, summed over the groups that run there at once; for printing too."""


_LOWERED = {operation: lower(expression, _ARGUMENTS, "none") for operation, expression in _ENTERING.items()}
"""Looked up by name, since hashing an expression costs more than calling its function."""


@dataclass(frozen=True, slots=True)
class LevelLoad:
    """What one collective asks of one level's links."""

    level: int
    """Index into `Network.levels`."""
    units: int
    """u: units of the level that one group spans inside the next."""
    group_ranks: int
    """r: ranks of one group inside one unit."""
    groups: int
    """q: groups that run at once through one unit's links."""
    entering_bytes: float
    """Bytes that enter one unit, over all groups."""
    bandwidth_s: float
    """Seconds that the links need for them."""
    ring_startups: int
    """Hops of a ring through the whole group that cross this level."""
    tree_startups: int
    """Hops of a tree: a chain inside the innermost level, binary above."""


def collective_time(
    operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network
) -> CollectiveTime:
    """Returns the time of one collective in the groups between two degrees, all of them at once.

    A measured curve of that operation and those degrees comes first: exact at its points, linear between them, the
    smallest point's seconds below, the last segment's bandwidth above (then "modelled"). Without one, the port model.

    Args:
        operation: What is run.
        degree_from: The group has the ranks of equal r mod degree_from ...
        degree_to: ... inside one block of degree_to ranks.
        message_bytes: The full message before sharding, in bytes.
        network: Levels and curves of the machine.

    Raises:
        ValueError: The degrees do not nest, or are no prefix fills of the levels.
    """
    if degree_from == degree_to or message_bytes == 0:
        return CollectiveTime(0.0, "modelled")
    for curve in network.curves:
        if (curve.operation, curve.degree_from, curve.degree_to) == (operation, degree_from, degree_to):
            return curve_time(curve.points, message_bytes)
    return CollectiveTime(port_time(operation, degree_from, degree_to, message_bytes, network), "modelled")


def port_time(operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network) -> float:
    """Returns the port model's seconds, whatever was measured: slowest level's links plus start-ups."""
    loads = level_loads(operation, degree_from, degree_to, message_bytes, network)
    alphas = [network.levels[load.level].alpha_s for load in loads]
    ring_s = sum(load.ring_startups * alpha for load, alpha in zip(loads, alphas, strict=True))
    tree_s = sum(load.tree_startups * alpha for load, alpha in zip(loads, alphas, strict=True))
    startups_s = 2 * min(ring_s, tree_s) if operation == "all_reduce" else ring_s
    return max((load.bandwidth_s for load in loads), default=0.0) + startups_s


def level_loads(
    operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network
) -> tuple[LevelLoad, ...]:
    """Returns what the collective asks of each level that its group spans, inner first."""
    sizes = [level.size for level in network.levels]
    spans = _spans(sizes, degree_from, degree_to)
    size = math.prod(spans)
    entering_function = _LOWERED[operation]
    loads = []
    unit_ranks = group_ranks = 1
    for index, (level, units) in enumerate(zip(network.levels, spans, strict=True)):
        if units > 1:
            groups = unit_ranks // group_ranks
            entering = float(entering_function(message_bytes, units, groups, group_ranks, size))
            ring = (units - 1) * (size // (group_ranks * units))
            tree = units - 1 if index == 0 else math.ceil(math.log2(units))
            loads.append(
                LevelLoad(
                    level=index,
                    units=units,
                    group_ranks=group_ranks,
                    groups=groups,
                    entering_bytes=entering,
                    bandwidth_s=entering / _reached_bytes_per_s(level, operation),
                    ring_startups=ring,
                    tree_startups=tree,
                )
            )
        unit_ranks *= level.size
        group_ranks *= units
    return tuple(loads)


def _reached_bytes_per_s(level: NetworkLevel, operation: Operation) -> float:
    for known, efficiency in level.efficiency:
        if known == operation:
            return level.unit_bytes_per_s * efficiency
    return level.unit_bytes_per_s


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
