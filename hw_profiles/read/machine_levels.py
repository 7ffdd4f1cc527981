"""The levels of a machine that was read, each number with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw_profiles.errors import ProfileError
from hw_profiles.fit.fit_levels import fit_levels
from hw_profiles.read.first_level import FirstLevel, first_level
from hw_profiles.read.machine_curves import ReadCurves
from hw_profiles.read.machine_links import NodeLinks
from hw_profiles.read.machine_shape import Shape
from hw_profiles.run_by import NCCL
from hw_profiles.schema import Algorithm, Curve, HardwareProfile, Level, Operation


@dataclass(frozen=True, slots=True)
class ReadLevels:
    """Levels inner first, and what holds for all of them."""

    levels: tuple[Level, ...]
    calls_s: dict[Operation, float]
    startups_hidden: float | None
    """As in `HardwareProfile`."""
    sources: dict[str, str]
    warnings: tuple[str, ...]


def read_levels(
    shape: Shape, links: NodeLinks | None, measured: ReadCurves, like: HardwareProfile | None
) -> ReadLevels:
    """Returns the levels of `shape`: what the wires carry, then what `curves` say of it.

    Args:
        shape: sizes and the wires' bandwidths.
        links: what joins the ranks of a node, if known.
        measured: curves, and the files that they are from.
        like: a profile whose numbers stand where nothing else is known.

    Raises:
        ProfileError: nothing tells a level's bandwidth.
    """
    starts = [first_level(index, shape, links, measured.curves, like) for index in range(len(shape.sizes))]
    sizes = {
        f"levels.{index}.size": f"{shape.inner_source if index < len(shape.inner) else shape.outer_source} ({size})"
        for index, size in enumerate(shape.sizes)
    }
    if not measured.curves:
        return _unfitted(starts, sizes, shape, like, measured.warnings)
    fitted = fit_levels([start.level for start in starts], measured.curves, NCCL)
    how = f"fitted to {', '.join(measured.files)} (median error {100 * fitted.median_error:.2g} %)"
    sources = {**sizes, "calls_s": how, "startups_hidden": how}
    warnings: list[str] = []
    for index, (start, level, is_told) in enumerate(zip(starts, fitted.levels, fitted.told, strict=True)):
        if not is_told:
            sources |= start.sources
            warnings += _untold(index, start, shape, measured.warnings)
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
    starts: Sequence[FirstLevel],
    sizes: dict[str, str],
    shape: Shape,
    like: HardwareProfile | None,
    left_out: Sequence[str],
) -> ReadLevels:
    """Returns the levels as they start: no curve tells more."""
    sources = dict(sizes)
    warnings: list[str] = []
    for index, start in enumerate(starts):
        sources |= start.sources
        warnings += _untold(index, start, shape, left_out)
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


def _untold(index: int, start: FirstLevel, shape: Shape, left_out: Sequence[str]) -> tuple[str, ...]:
    """Warns of a level whose bandwidth is that of its wires.

    Raises:
        ProfileError: not even those are known.
    """
    if not start.is_guess:
        is_wire = index < len(shape.bytes_per_s) and not start.level.efficiency
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
    if left_out:
        text += ". Of what was given:\n  " + "\n  ".join(left_out)
    raise ProfileError(text, key=f"levels.{index}.unit_bytes_per_s")


def algorithms_of(curves: Sequence[Curve], like: HardwareProfile | None) -> Mapping[Operation, tuple[Algorithm, ...]]:
    """Returns how operations are run: as the library that was benchmarked does; the accelerators' one if none was."""
    return like.algorithms if like is not None and like.algorithms and not curves else NCCL
