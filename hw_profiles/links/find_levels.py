"""Finds the hierarchy of levels in a graph of links.

A level is a partition of the ranks into units of equal size such that ranks of one unit reach each other better than
ranks of others. Levels nest, so they are found from the inside, starting with single ranks:

1. b(u, v) is what ranks u and v exchange while all others are silent, over their own link and over switches, never
   through a third rank. Values of b nearer than a factor of 1.25 are one scale (`scales.GAP`): measured ones are noisy.
2. At each scale, two units are near each other when some rank of one and some of the other reach that scale. The
   partitions that this graph of units singles out are candidates (`clusters`): cliques of g units where no other
   partition into cliques of g exists, and connected components of equal size. What many pairs share b does not show,
   so the ranks behind the same switches are candidates too (`switch_layers`), where they are of equal number.
3. Over wires, a candidate must be tight: for the units U of a group S,

       min_U  flow(S - U -> U) / |U|   >=   1.1  max_S  flow(all - S -> S) / |S|

   in words, what enters a unit from its own group, per rank, exceeds what enters the group from outside. The pairs with
   two links in a hybrid cube mesh are not tight (50 GB/s from the mate, 100 from others), its quads are (100 and 37.5).
   Pairs that were measured alone may share wires, so their sums say nothing; there the median over pairs inside the
   groups must be 1.5 times that between the two nearest groups.
4. The smallest candidate that is tight (of the fastest scale, where several are) makes the units of the next level, and
   the search goes on among them. All ranks together are the outermost level.

What joins ranks unequally is no level (three near ranks and one apart); it is named in `FoundLevels.notes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hw_profiles.links.check_connected import check_connected
from hw_profiles.links.level_bandwidth import level_bandwidth
from hw_profiles.links.link_graph import LinkGraph, Unit
from hw_profiles.links.nest import nest, speed_text
from hw_profiles.links.wires import Wires, wires_of

_SMEARED = 2.0
"""From the slowest to the fastest of one scale: more than noise and uneven wires explain."""


@dataclass(frozen=True, slots=True)
class FoundLevels:
    """The levels of a graph, inner first."""

    sizes: tuple[int, ...]
    """Units of the level below (ranks for the first) in a unit of each level; their product is the number of ranks.
    Empty for a single rank."""
    bytes_per_s: tuple[float, ...]
    """Per level, what can enter one unit of it from its siblings, one direction; the least over its units."""
    order: tuple[int, ...]
    """The ranks, by their places in `LinkGraph.ranks`, in an order in which the units of every level are contiguous."""
    notes: tuple[str, ...]
    """For people: groups that are no level and why, and how to number the ranks anew."""


def find_levels(graph: LinkGraph) -> FoundLevels:
    """Returns the levels that the links of `graph` make.

    Deterministic: units are numbered by their first rank.

    Raises:
        ProfileError: some ranks do not reach others.
    """
    check_connected(graph)
    wires = wires_of(graph)
    nesting = nest(wires)
    order = _order(nesting.partitions)
    steps = list(pairwise(nesting.partitions))
    return FoundLevels(
        sizes=tuple(len(units) // len(parents) for units, parents in steps),
        bytes_per_s=tuple(level_bandwidth(wires, units, parents) for units, parents in steps),
        order=order,
        notes=(*nesting.notes, *_smeared(wires), *_renumbering(graph, order)),
    )


def _order(partitions: Sequence[Sequence[Unit]]) -> tuple[int, ...]:
    """Returns the ranks with the units of every level together, units ascending by their first rank."""
    outer_first = [{rank: unit[0] for unit in units for rank in unit} for units in reversed(partitions)]
    return tuple(sorted(outer_first[-1], key=lambda rank: tuple(first[rank] for first in outer_first)))


def _smeared(wires: Wires) -> list[str]:
    return [
        f"bandwidths from {speed_text(scale.slowest_bytes_per_s)} to {speed_text(scale.fastest_bytes_per_s)} without a "
        "gap: no levels can be told apart among them; if there are any, give them by --levels"
        for scale in wires.scales
        if scale.fastest_bytes_per_s > _SMEARED * scale.slowest_bytes_per_s
    ]


def _renumbering(graph: LinkGraph, order: tuple[int, ...]) -> list[str]:
    if order == tuple(range(len(order))):
        return []
    names = ",".join(graph.ranks[rank] for rank in order)
    are_devices = not graph.measured_alone and all(name.isdigit() for name in graph.ranks)
    how = f"CUDA_VISIBLE_DEVICES={names} (ROCm: HIP_VISIBLE_DEVICES)" if are_devices else f"ranks in the order {names}"
    return [f"the units of the levels are not contiguous ranks: start with {how}, or shard groups cross slow links"]
