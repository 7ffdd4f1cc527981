"""Finds the nested partitions of the ranks, from single ranks to all of them. `find_levels` has the mathematics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hw_profiles.links.clusters import Partition, clusters, components
from hw_profiles.links.link_graph import Unit
from hw_profiles.links.scales import Scale
from hw_profiles.links.wires import Wires

_TIGHT = 1.1
"""How much more must enter a unit from its group than enters the group from outside, per rank."""
_CONTRAST = 1.5
"""How much more a pair inside a group must reach than a pair of the two nearest groups, on the median, where pairs were
measured alone: more than the noise that `scales.GAP` allows for can make of one bandwidth."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """The units of every level, and what is none."""

    partitions: tuple[tuple[Unit, ...], ...]
    """Single ranks first, all ranks last; each is coarser than the one before."""
    notes: tuple[str, ...]
    """Groups that are no level, and why."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    groups: tuple[Unit, ...]
    how: str
    """By what they are joined."""


def nest(wires: Wires) -> Nesting:
    """Returns the smallest tight partition among the ranks, the smallest among its units, and so on."""
    everyone = tuple(range(wires.num_ranks))
    partitions: list[tuple[Unit, ...]] = [tuple((rank,) for rank in everyone)]
    notes: list[str] = []
    while (units := _joined(wires, partitions[-1], notes)) is not None:
        partitions.append(units)
    notes += _unequal(wires, partitions[-1])
    if len(partitions[-1]) > 1:
        partitions.append((everyone,))
    return Nesting(tuple(partitions), tuple(dict.fromkeys(notes)))


def _joined(wires: Wires, units: tuple[Unit, ...], notes: list[str]) -> tuple[Unit, ...] | None:
    """Returns the units joined into the smallest groups that are tight, or None; adds why others are not."""
    least, what = (_CONTRAST, "per pair") if wires.is_measured_alone else (_TIGHT, "per rank")
    for candidate in _candidates(wires, units):
        shares = _reached_alone if wires.is_measured_alone else _entering
        inside, outside = shares(wires, units, candidate.groups)
        if inside >= least * outside:
            return candidate.groups
        notes.append(
            f"groups of {len(candidate.groups[0])} ranks {candidate.how} are no level: {speed_text(inside)} {what} "
            f"inside a group, {speed_text(outside)} from outside"
        )
    return None


def _candidates(wires: Wires, units: tuple[Unit, ...]) -> list[_Candidate]:
    """Returns the partitions into groups of units, smallest first, of faster links before slower ones."""
    found = [
        _Candidate(_union(units, partition), f"over {_reach(scale)}")
        for scale in wires.scales
        for partition in clusters(wires.near(units, scale))
    ]
    found += [_Candidate(layer, "behind the same switches") for layer in wires.layers if _coarsens(layer, units)]
    return sorted(found, key=lambda candidate: len(candidate.groups[0]))


def _coarsens(groups: Sequence[Unit], units: Sequence[Unit]) -> bool:
    """Returns whether `groups` are of one size and hold whole units, fewer groups than units."""
    unit_of = {rank: unit[0] for unit in units for rank in unit}
    held = [len({unit_of[rank] for rank in group}) for group in groups]
    return len({len(group) for group in groups}) == 1 and sum(held) == len(units) > len(groups)


def _union(units: Sequence[Unit], partition: Partition) -> tuple[Unit, ...]:
    return tuple(sorted(tuple(sorted(rank for number in group for rank in units[number])) for group in partition))


def _entering(wires: Wires, units: Sequence[Unit], groups: Sequence[Unit]) -> tuple[float, float]:
    """Returns the least that enters a unit from its group and the most that enters a group from outside, per rank."""
    everyone = frozenset(range(wires.num_ranks))
    inside, outside = [], []
    for group in groups:
        for unit in units:
            if set(unit) <= set(group):
                siblings = tuple(rank for rank in group if rank not in unit)
                inside.append(wires.entering_bytes_per_s(unit, siblings) / len(unit))
        others = tuple(sorted(everyone.difference(group)))
        outside.append(wires.entering_bytes_per_s(group, others) / len(group))
    return min(inside), max(outside)


def _reached_alone(wires: Wires, units: Sequence[Unit], groups: Sequence[Unit]) -> tuple[float, float]:
    """Returns the median of what ranks of different units of a group reach, and that between the two nearest groups."""
    order, size, count = [rank for group in groups for rank in group], len(groups[0]), len(groups)
    unit_of = np.empty(wires.num_ranks, dtype=np.int64)
    for number, unit in enumerate(units):
        unit_of[list(unit)] = number
    places = unit_of[order].reshape(count, size)
    reached = wires.between[np.ix_(order, order)].reshape(count, size, count, size)
    own = np.arange(count)
    inside = reached[own, :, own, :][places[:, :, None] != places[:, None, :]]
    apart = np.median(reached, axis=(1, 3))[~np.eye(count, dtype=bool)]
    return float(np.median(inside)), float(apart.max())


def _unequal(wires: Wires, units: Sequence[Unit]) -> list[str]:
    """Returns a note per way in which units of the last level are joined unequally."""
    found: dict[tuple[Unit, ...], str] = {}
    for scale in wires.scales:
        found.setdefault(_union(units, components(wires.near(units, scale))), f"{_reach(scale)} join")
    for layer in wires.layers:
        if len(layer) < len(units):
            found.setdefault(layer, "switches join")
    return [
        f"{how} {_counted(groups)} ranks: no equal split, so no level (levels have units of one size)"
        for groups, how in found.items()
        if len({len(group) for group in groups}) > 1
    ]


def _counted(groups: Sequence[Unit]) -> str:
    sizes = Counter(len(group) for group in groups)
    return " and ".join(f"{number} x {size}" if number > 1 else f"{size}" for size, number in sorted(sizes.items()))


def _reach(scale: Scale) -> str:
    return f"links of {speed_text(scale.slowest_bytes_per_s)} and more"


def speed_text(bytes_per_s: float) -> str:
    """Returns a bandwidth for people."""
    return f"{bytes_per_s / 1e9:.3g} GB/s"
