"""Gives a profile another number of nodes and ranks per node, and keeps what was measured where it still holds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import ValidationError

from costmodels.degrees import fill, legal_degrees
from hw_profiles.devices import Device
from hw_profiles.errors import ProfileError
from hw_profiles.schema import Curve, HardwareProfile, Level, Pair


def resize(
    profile: HardwareProfile, num_nodes: int | None = None, ranks_per_node: int | None = None
) -> HardwareProfile:
    """Returns `profile` with `num_nodes` nodes of `ranks_per_node` ranks; None keeps what the profile has.

    `num_nodes` fills the levels above the node from the inside: a number that a level of fixed size (a rack) holds must
    divide that size, a larger one must be whole units of it, and the outermost level grows without limit.
    `ranks_per_node` must fill whole units of the levels inside a node. Where ranks are logical both are free, and each
    rank gets its share of the machine's cores and memory. Curves of groups that no longer exist, or that would now
    share their links with others, are dropped; so are pairs of ranks that no longer exist or have another number, and
    the wires of a node that is no longer whole.

    Raises:
        ProfileError: the machine cannot have these sizes; says which it can have.
    """
    sizes = (
        *_inner_sizes(profile, profile.ranks_per_node if ranks_per_node is None else ranks_per_node),
        *_outer_sizes(profile, profile.num_nodes if num_nodes is None else num_nodes),
    )
    old = tuple(level.size for level in profile.levels)
    if sizes == old:
        return profile
    shared = _shared(profile, sizes)
    levels = tuple(_of_size(level, size) for level, size in zip(shared.levels, sizes, strict=True))
    curves = tuple(curve for curve in profile.curves if _still_holds(curve, old, sizes, profile.logical))
    inside = slice(profile.node_level + 1)
    same_nodes = old[inside] == sizes[inside]
    pairs = _pairs_left(profile, math.prod(sizes)) if same_nodes and not profile.logical else ()
    links = profile.links if same_nodes else ()
    return shared.model_copy(update={"levels": levels, "curves": curves, "pairs": pairs, "links": links})


def _of_size(level: Level, size: int) -> Level:
    """Returns the level with another number of units; in a mesh, fewer units have fewer links."""
    links = (size - 1) / (level.size - 1) if level.is_mesh and min(size, level.size) > 1 else 1.0
    return level.model_copy(update={"size": size, "unit_bytes_per_s": level.unit_bytes_per_s * links})


def _inner_sizes(profile: HardwareProfile, ranks_per_node: int) -> tuple[int, ...]:
    """Returns the sizes of the levels inside a node for `ranks_per_node`."""
    inner = [level.size for level in profile.levels[: profile.node_level + 1]]
    if profile.logical and len(inner) == 1 and ranks_per_node >= 1:
        return (ranks_per_node,)
    filled = fill(inner, ranks_per_node) if ranks_per_node >= 1 else None
    if filled is None:
        legal = ", ".join(str(degree) for degree in legal_degrees(inner))
        raise ProfileError(
            f"{profile.name} cannot run {ranks_per_node} ranks per node: its nodes have {profile.ranks_per_node}, and "
            f"whole units of its levels give {legal}",
            key="ranks_per_node",
            value=ranks_per_node,
            expected=f"one of {legal}",
        )
    return filled


def _outer_sizes(profile: HardwareProfile, num_nodes: int) -> tuple[int, ...]:
    """Returns the sizes of the levels above a node for `num_nodes`; the outermost one grows without limit."""
    outer = [level.size for level in profile.levels[profile.node_level + 1 :]]
    if num_nodes >= 1:
        if not outer and num_nodes == 1:
            return ()
        if outer:
            filled = fill([*outer[:-1], num_nodes], num_nodes)
            if filled is not None:
                return filled
    raise ProfileError(
        f"{profile.name} cannot have {num_nodes} {'node' if num_nodes == 1 else 'nodes'}: "
        f"{_possible_nodes(profile, num_nodes)}",
        key="num_nodes",
        value=num_nodes,
        expected="a positive number of nodes that fills whole units of the levels above the node",
    )


def _possible_nodes(profile: HardwareProfile, num_nodes: int) -> str:
    """Returns which numbers of nodes a machine can have, and those nearest to one that it cannot have."""
    outer = profile.levels[profile.node_level + 1 :]
    if not outer:
        return "it is one node"
    if len(outer) == 1:
        return "it takes any positive number"
    sizes = [level.size for level in outer[:-1]]
    parts = legal_degrees(sizes)[:-1]
    whole = math.prod(sizes)
    # Above one whole unit only whole ones; below it only its even parts.
    near = (
        [part for part in parts if part < num_nodes][-1:] + [part for part in (*parts, whole) if part > num_nodes][:1]
        if num_nodes < whole
        else [num_nodes // whole * whole, (num_nodes // whole + 1) * whole]
    )
    levels = " and ".join(f"{level.name}s of {level.size}" for level in outer[:-1])
    return (
        f"it has {levels}, of which an even part ({', '.join(map(str, parts))} nodes) or whole ones (multiples of "
        f"{whole}) can be used; try {' or '.join(map(str, near))}"
    )


def _pairs_left(profile: HardwareProfile, world_size: int) -> tuple[Pair, ...]:
    """Returns the measured pairs whose two ranks still exist."""
    return tuple(pair for pair in profile.pairs if max(pair.source, pair.target) < world_size)


def _still_holds(curve: Curve, old: Sequence[int], new: Sequence[int], logical: bool) -> bool:
    """Tells whether a curve's groups exist, have the same shape, and share the same links as when measured."""
    if logical:
        # All ranks compete for the same cores, so that another number of them changes every time.
        return False
    shapes = (fill(old, curve.degree_to), fill(new, curve.degree_to))
    same_from = fill(old, curve.degree_from) == fill(new, curve.degree_from)
    if shapes[0] is None or shapes[0] != shapes[1] or not same_from:
        return False
    top = max((index for index, units in enumerate(shapes[0]) if units > 1), default=0)
    return tuple(old[:top]) == tuple(new[:top])


def _shared(profile: HardwareProfile, sizes: Sequence[int]) -> HardwareProfile:
    """Returns the profile with each rank's part of a machine whose cores and memory all ranks share."""
    world_size = math.prod(sizes)
    if not profile.logical or world_size == profile.world_size:
        return profile
    cores = profile.known_host.num_cores or profile.world_size
    # One rank computes with one core at most: launchers give each process one thread.
    speed = min(1.0, cores / world_size) / min(1.0, cores / profile.world_size)
    note = f"; shared by {world_size} ranks in place of {profile.world_size} (derived)"
    device = profile.known_device.model_dump()
    for key in ("peak_flop_per_s", "matmul_flop_per_s"):
        device[key] = {precision: rate * speed for precision, rate in device[key].items()}
    device["memory_bytes_per_s"] *= speed
    device["operator_launch_s"] /= speed
    device["memory_bytes"] = profile.known_host.memory_bytes // world_size
    levels = tuple(
        level.model_copy(update={"unit_bytes_per_s": level.unit_bytes_per_s * share})
        for level, share in zip(profile.levels, _link_shares(profile, sizes), strict=True)
    )
    try:
        own_part = Device.model_validate(device)
    except ValidationError as error:
        raise ProfileError(
            f"{world_size} ranks share {profile.known_host.memory_bytes} bytes of memory on {profile.name}: "
            f"{device['memory_bytes']} each, of which a process itself takes {profile.known_device.reserved_bytes}; "
            "use fewer ranks",
            key="device.memory_bytes",
            value=device["memory_bytes"],
            expected=f"more than {profile.known_device.reserved_bytes}",
        ) from error
    sources = {
        key: text + note if key.split(".")[0] in ("device", "levels") else text for key, text in profile.sources.items()
    }
    return profile.model_copy(update={"device": own_part, "levels": levels, "sources": sources})


def _link_shares(profile: HardwareProfile, sizes: Sequence[int]) -> tuple[float, ...]:
    """Returns, for each level, a unit's part of the machine's copying speed against that when it was measured.

    A unit of a level has as large a part as it has of the ranks.
    """
    shares = []
    old_part, new_part = 1 / profile.world_size, 1 / math.prod(sizes)
    for level, size in zip(profile.levels, sizes, strict=True):
        shares.append(new_part / old_part)
        old_part, new_part = old_part * level.size, new_part * size
    return tuple(shares)
