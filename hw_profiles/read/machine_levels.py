"""The levels of a machine that was read, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw_profiles.errors import ProfileError
from hw_profiles.fit.fit_levels import fit_levels
from hw_profiles.read.collective_operation import bus_factor
from hw_profiles.read.machine_curves import ReadCurves
from hw_profiles.read.machine_shape import Shape
from hw_profiles.schema import Algorithm, Curve, HardwareProfile, Level, Operation

NCCL_ALGORITHMS: dict[Operation, tuple[Algorithm, ...]] = {
    "all_gather": ("ring",),
    "reduce_scatter": ("ring",),
    "all_reduce": ("ring", "tree"),
    "reduce": ("ring",),
    "broadcast": ("ring",),
    "all_to_all": ("direct",),
}
"""What NCCL and RCCL run. Source: NCCL 2.28 src/graph/tuning.cc; nccl-tests sends and receives in all-to-all."""

_ALPHAS = {"wire": 3.4e-6, "pcie": 5.7e-6, "network": 9.6e-6}
"""Seconds per start-up. Source: NCCL 2.10 src/graph/tuning.cc, hwLat of the Simple protocol: NVLink, PCI, network."""
_SLOT_BYTES_PER_S = 31.5e9
_ALPHA_SOURCE = "start-up of one hop of a ring in the Simple protocol: NCCL 2.10 src/graph/tuning.cc, hwLat"


@dataclass(frozen=True, slots=True)
class Joints:
    """What joins the ranks of one node."""

    has_wires: bool
    """NVLink, Infinity Fabric, or links of which only the bandwidth is known."""
    has_pcie: bool
    has_sockets: bool
    """PCIe over more than one socket."""


@dataclass(frozen=True, slots=True)
class ReadLevels:
    """Levels inner first, and what holds for all of them."""

    levels: tuple[Level, ...]
    calls_s: dict[Operation, float]
    startups_hidden: float | None
    """As in `HardwareProfile`."""
    sources: dict[str, str]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Start:
    """A level before anything is fitted to it."""

    level: Level
    sources: dict[str, str]
    is_guess: bool = False
    """Its bandwidth is only what some rank was seen to take in."""


def read_levels(
    shape: Shape,
    wire_source: str,
    joints: Joints,
    measured: ReadCurves,
    like: HardwareProfile | None,
) -> ReadLevels:
    """Returns the levels of `shape`: what the wires carry, then what `curves` say of it.

    Args:
        shape: sizes and the wires' bandwidths.
        wire_source: where those are from; "" without a graph of links.
        joints: what joins the ranks of a node.
        measured: curves, and the files that they are from.
        like: a profile whose numbers stand where nothing else is known.

    Raises:
        ProfileError: nothing tells a level's bandwidth.
    """
    starts = [_start(index, shape, wire_source, joints, measured.curves, like) for index in range(len(shape.sizes))]
    sizes = {
        f"levels.{index}.size": f"{shape.inner_source if index < len(shape.inner) else shape.outer_source} ({size})"
        for index, size in enumerate(shape.sizes)
    }
    if not measured.curves:
        return _unfitted(starts, sizes, shape, like)
    fitted = fit_levels([start.level for start in starts], measured.curves, NCCL_ALGORITHMS)
    how = f"fitted to {', '.join(measured.files)} (median error {100 * fitted.median_error:.2g} %)"
    sources = {**sizes, "calls_s": how, "startups_hidden": how}
    warnings: list[str] = []
    for index, (start, level, is_told) in enumerate(zip(starts, fitted.levels, fitted.told, strict=True)):
        if not is_told:
            sources |= start.sources
            warnings += _untold(index, start, shape)
            continue
        sources[f"levels.{index}"] = how
        # A level that never bounds a collective keeps the bandwidth that it came with.
        if level.unit_bytes_per_s == start.level.unit_bytes_per_s:
            path = f"levels.{index}.unit_bytes_per_s"
            sources[path] = start.sources.get(path, start.sources.get(f"levels.{index}", how))
            if start.is_guess:
                warnings.append(
                    f"no collective read is bound by level {level.name}: its bandwidth is the most that any rank was "
                    "seen to take in; --topology, or a run with all ranks of one node, tells it"
                )
    return ReadLevels(fitted.levels, fitted.calls_s, fitted.startups_hidden, sources, tuple(warnings))


def _unfitted(
    starts: Sequence[_Start], sizes: dict[str, str], shape: Shape, like: HardwareProfile | None
) -> ReadLevels:
    """Returns the levels as they start: no curve tells more."""
    sources = dict(sizes)
    warnings: list[str] = []
    for index, start in enumerate(starts):
        sources |= start.sources
        warnings += _untold(index, start, shape)
    if like is not None:
        texts = {path: text for path, text in like.sources.items() if path in ("calls_s", "startups_hidden")}
        sources |= {path: f"{like.name} (--like): {text}" for path, text in texts.items()}
    return ReadLevels(
        tuple(start.level for start in starts),
        dict(like.calls_s) if like is not None else {},
        like.startups_hidden if like is not None else None,
        sources,
        tuple(warnings),
    )


def _untold(index: int, start: _Start, shape: Shape) -> tuple[str, ...]:
    """Warns of a level whose bandwidth is that of its wires.

    Raises:
        ProfileError: not even those are known.
    """
    if not start.is_guess:
        is_wire = index < len(shape.bytes_per_s)
        text = f"no collective was measured over level {start.level.name}: its bandwidth is what the wires carry"
        return (f"{text}, of which collectives reach a part",) if is_wire else ()
    if index >= len(shape.inner):
        text = (
            f"nothing says how fast the network between the {shape.outer[0]} nodes is: give --collectives of a run "
            "with all ranks of several nodes, or --like NAME, a profile with such a network"
        )
    else:
        text = (
            "nothing says how fast the links inside a node are: give --topology, --links, --collectives of a run with "
            "all ranks of one node, or --like NAME"
        )
    raise ProfileError(text, key=f"levels.{index}.unit_bytes_per_s")


def _start(
    index: int,
    shape: Shape,
    wire_source: str,
    joints: Joints,
    curves: Sequence[Curve],
    like: HardwareProfile | None,
) -> _Start:
    name, size, where = _name(index, shape, joints.has_sockets), shape.sizes[index], f"levels.{index}"
    if index < len(shape.bytes_per_s):
        is_wired = not joints.has_pcie or (index == 0 and joints.has_wires)
        alpha_s = _ALPHAS["wire" if is_wired else "pcie"]
        level = Level(name=name, size=size, unit_bytes_per_s=_rounded(shape.bytes_per_s[index]), alpha_s=alpha_s)
        return _Start(level, {f"{where}.unit_bytes_per_s": wire_source, f"{where}.alpha_s": _ALPHA_SOURCE})
    model = _model(index, shape, like)
    if model is not None and like is not None:
        taken, position = model
        path = f"levels.{position}"
        sources = {
            where + key.removeprefix(path): f"{like.name} (--like): {text}"
            for key, text in like.sources.items()
            if key == path or (key.startswith(f"{path}.") and key != f"{path}.size")
        }
        return _Start(taken.model_copy(update={"name": name, "size": size}), sources)
    if size == 1:
        level = Level(name=name, size=1, unit_bytes_per_s=_SLOT_BYTES_PER_S, alpha_s=_ALPHAS["pcie"])
        return _Start(level, {where: "a single unit exchanges nothing; PCIe 4.0 x16 stands for it"})
    alpha_s = _ALPHAS["wire" if index < len(shape.inner) else "network"]
    level = Level(name=name, size=size, unit_bytes_per_s=_rounded(_carried(curves)), alpha_s=alpha_s)
    text = "the most that any rank was seen to take in: size / time x bus factor"
    return _Start(level, {f"{where}.unit_bytes_per_s": text, f"{where}.alpha_s": _ALPHA_SOURCE}, is_guess=True)


def _name(index: int, shape: Shape, has_sockets: bool) -> str:
    """Returns `package` or `socket` inside the `node`, and the `cluster` outside; others are boards and racks."""
    if index >= len(shape.inner):
        return "cluster" if index == len(shape.sizes) - 1 else f"rack{'' if index == len(shape.inner) else index}"
    if index == len(shape.inner) - 1:
        return "node"
    if has_sockets and index == len(shape.inner) - 2:
        return "socket"
    return "package" if index == 0 else f"board{'' if index == 1 else index}"


def _model(index: int, shape: Shape, like: HardwareProfile | None) -> tuple[Level, int] | None:
    """Returns the level of `like` that has the same place, and its index there."""
    if like is None:
        return None
    if index >= len(shape.inner):
        position = like.node_level + 1 + index - len(shape.inner)
        return (like.levels[position], position) if position < len(like.levels) else None
    inner = tuple(level.size for level in like.levels[: like.node_level + 1])
    return (like.levels[index], index) if inner == shape.inner else None


def _carried(curves: Sequence[Curve]) -> float:
    """Returns the most that any rank took in, bytes per second: a bus bandwidth."""
    rates = [
        point.bytes / point.seconds * bus_factor(curve.operation, curve.degree_to // curve.degree_from)
        for curve in curves
        for point in curve.points
    ]
    return max(rates, default=1.0)


def algorithms_of(curves: Sequence[Curve], like: HardwareProfile | None) -> Mapping[Operation, tuple[Algorithm, ...]]:
    """Returns how operations are run: as the library that was benchmarked does; the accelerators' one if none was."""
    return like.algorithms if like is not None and like.algorithms and not curves else NCCL_ALGORITHMS


def _rounded(value: float) -> float:
    """Four digits: what a solver leaves behind them is noise."""
    return float(f"{value:.4g}")
