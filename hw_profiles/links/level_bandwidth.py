"""What can enter one unit of a level from its siblings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from hw_profiles.links.clusters import components
from hw_profiles.links.link_graph import Unit
from hw_profiles.links.scales import scales
from hw_profiles.links.wires import Wires


def level_bandwidth(wires: Wires, units: Sequence[Unit], parents: Sequence[Unit]) -> float:
    """Returns the bytes per second into one unit from the other units of its parent, all units receiving at once.

    Over wires, the least of the largest flows into a unit. Where units of one parent fall into groups with narrow links
    between (sockets with unequal numbers of devices), such a group bounds it too: in an all-gather over u units, a
    group of k of them takes in (u - k) / (u - 1) of what one unit does, so (u - 1) / (u - k) times the flow into it.

    Of pairs that were measured alone, the median over the fastest scale: one pair's bandwidth is what a unit is known
    to take in, and several at once may share its wire.

    Args:
        wires: the graph.
        units: of the level, inside one of `parents` each.
        parents: units of the next level.
    """
    inside = [tuple(unit for unit in units if set(unit) <= set(parent)) for parent in parents]
    if wires.is_measured_alone:
        return _reached_alone(wires, inside)
    return min(_flow_into_one(wires, siblings) for siblings in inside)


def _flow_into_one(wires: Wires, siblings: Sequence[Unit]) -> float:
    least = min(wires.entering_bytes_per_s(unit, _others(siblings, (number,))) for number, unit in enumerate(siblings))
    for group in _groups(wires, siblings):
        ranks = tuple(rank for number in group for rank in siblings[number])
        flow = wires.entering_bytes_per_s(ranks, _others(siblings, group))
        least = min(least, flow * (len(siblings) - 1) / (len(siblings) - len(group)))
    return least


def _groups(wires: Wires, siblings: Sequence[Unit]) -> tuple[tuple[int, ...], ...]:
    """Returns the groups of siblings that a scale or a layer of switches joins: more than one unit, and not all."""
    found = [group for scale in wires.scales for group in components(wires.near(siblings, scale))]
    found += [
        tuple(number for number, unit in enumerate(siblings) if set(unit) <= set(part))
        for layer in wires.layers
        for part in layer
    ]
    return tuple(group for group in dict.fromkeys(found) if 1 < len(group) < len(siblings))


def _reached_alone(wires: Wires, inside: Sequence[Sequence[Unit]]) -> float:
    reached: list[float] = []
    for siblings in inside:
        for number, unit in enumerate(siblings):
            reached += wires.matrix[np.ix_(_others(siblings, (number,)), unit)].ravel().tolist()
    slowest = scales(reached)[0].slowest_bytes_per_s
    return statistics.median(value for value in reached if value >= slowest)


def _others(siblings: Sequence[Unit], group: Sequence[int]) -> Unit:
    return tuple(rank for number, unit in enumerate(siblings) if number not in group for rank in unit)
