"""A level of a machine that was read, before any curve is fitted to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hw_profiles.links.is_mesh import is_mesh
from hw_profiles.read.collective_operation import bus_factor
from hw_profiles.read.machine_links import NodeLinks
from hw_profiles.read.machine_shape import Shape
from hw_profiles.schema import Curve, HardwareProfile, Level

_ALPHAS = {"wire": 3.4e-6, "pcie": 5.7e-6, "network": 9.6e-6}
"""Seconds per start-up. Source: NCCL 2.10 src/graph/tuning.cc, hwLat of the Simple protocol: NVLink, PCI, network."""
_SLOT_BYTES_PER_S = 31.5e9
_ALPHA_SOURCE = "start-up of one hop of a ring in the Simple protocol: NCCL 2.10 src/graph/tuning.cc, hwLat"


@dataclass(frozen=True, slots=True)
class FirstLevel:
    """A level, and where its numbers are from."""

    level: Level
    sources: dict[str, str]
    is_guess: bool = False
    """Its bandwidth is only what some rank was seen to take in."""


def first_level(
    index: int,
    shape: Shape,
    links: NodeLinks | None,
    curves: Sequence[Curve],
    like: HardwareProfile | None,
) -> FirstLevel:
    """Returns level `index`: by the wires, else by the profile that the machine is like, else by what ranks took in."""
    name = _name(index, shape, links.num_sockets if links is not None else 0)
    size, where = shape.sizes[index], f"levels.{index}"
    taken = _of_model(index, shape, like)
    if links is not None and index < len(shape.bytes_per_s):
        is_wired = not links.has_pcie or (index == 0 and links.has_wires)
        alpha_s = _ALPHAS["wire" if is_wired else "pcie"]
        bytes_per_s = _rounded(shape.bytes_per_s[index])
        mesh = index == 0 and _joins_directly(shape, links, bytes_per_s)
        own = {f"{where}.unit_bytes_per_s": links.source}
        if taken is not None:
            own_numbers = {"name": name, "size": size, "unit_bytes_per_s": bytes_per_s, "is_mesh": mesh}
            return FirstLevel(taken.level.model_copy(update=own_numbers), {**taken.sources, **own})
        level = Level(name=name, size=size, unit_bytes_per_s=bytes_per_s, alpha_s=alpha_s, is_mesh=mesh)
        return FirstLevel(level, {**own, f"{where}.alpha_s": _ALPHA_SOURCE})
    if taken is not None:
        return FirstLevel(taken.level.model_copy(update={"name": name, "size": size}), taken.sources)
    if size == 1:
        level = Level(name=name, size=1, unit_bytes_per_s=_SLOT_BYTES_PER_S, alpha_s=_ALPHAS["pcie"])
        return FirstLevel(level, {where: "a single unit exchanges nothing; PCIe 4.0 x16 stands for it"})
    alpha_s = _ALPHAS["wire" if index < len(shape.inner) else "network"]
    level = Level(name=name, size=size, unit_bytes_per_s=_rounded(_carried(curves)), alpha_s=alpha_s)
    text = "the most that any rank was seen to take in: size / time x bus factor"
    return FirstLevel(level, {f"{where}.unit_bytes_per_s": text, f"{where}.alpha_s": _ALPHA_SOURCE}, is_guess=True)


def _joins_directly(shape: Shape, links: NodeLinks, bytes_per_s: float) -> bool:
    """Tells whether the ranks of the first innermost unit are a full mesh of equal wires."""
    unit = [links.graph.ranks[place] for place in shape.order[: shape.sizes[0]]]
    return is_mesh(links.graph, unit, bytes_per_s)


def _name(index: int, shape: Shape, num_sockets: int) -> str:
    """Returns `package` or `socket` inside the `node`, and the `cluster` outside; others are boards and racks."""
    if index >= len(shape.inner):
        return "cluster" if index == len(shape.sizes) - 1 else f"rack{'' if index == len(shape.inner) else index}"
    if index == len(shape.inner) - 1:
        return "node"
    if index == len(shape.inner) - 2 and shape.inner[-1] == num_sockets:
        return "socket"
    return "package" if index == 0 else f"board{'' if index == 1 else index}"


def _of_model(index: int, shape: Shape, like: HardwareProfile | None) -> FirstLevel | None:
    """Returns the level of `like` at the same place; those inside a node only where all sizes are the same."""
    if like is None:
        return None
    inner = tuple(level.size for level in like.levels[: like.node_level + 1])
    position = index if index < len(shape.inner) else like.node_level + 1 + index - len(shape.inner)
    if position >= len(like.levels) or (index < len(shape.inner) and inner != shape.inner):
        return None
    path = f"levels.{position}"
    sources = {
        f"levels.{index}{key.removeprefix(path)}": f"{like.name} (--like): {text}"
        for key, text in like.sources.items()
        if key == path or (key.startswith(f"{path}.") and key != f"{path}.size")
    }
    return FirstLevel(like.levels[position], sources)


def _carried(curves: Sequence[Curve]) -> float:
    """Returns the most that any rank took in, bytes per second: a bus bandwidth."""
    rates = [
        point.bytes / point.seconds * bus_factor(curve.operation, curve.degree_to // curve.degree_from)
        for curve in curves
        for point in curve.points
    ]
    return max(rates, default=1.0)


def _rounded(value: float) -> float:
    """Four digits: what a solver leaves behind them is noise."""
    return float(f"{value:.4g}")
