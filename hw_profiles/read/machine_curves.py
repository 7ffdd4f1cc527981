"""Which benchmark runs are curves of a machine, and of which groups of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from costmodels.degrees import fill
from hw_profiles.read.collective_run import CollectiveRun
from hw_profiles.read.machine_shape import Shape
from hw_profiles.schema import Curve, CurvePoint, Operation

_FALLS = 0.95
"""Less of the time of a smaller message than this is more than noise."""

_LEAST_BYTES = 2**20
"""A run without any message of this size tells start-ups and no bandwidth."""

Kind = tuple[Operation, int, int]


@dataclass(frozen=True, slots=True)
class ReadCurves:
    """Curves, the source of each, and the files that they are from."""

    curves: tuple[Curve, ...]
    sources: tuple[str, ...]
    files: tuple[str, ...]
    warnings: tuple[str, ...]
    """Which runs are left out and why, and what is odd in the others."""


def curves_of(runs: Sequence[CollectiveRun], shape: Shape) -> ReadCurves:
    """Returns the curves of the machine. Runs of one kind are merged: medians.

    A curve of a profile is of all groups of its kind at once, on groups that the machine's levels have.
    """
    by_kind: dict[Kind, list[CollectiveRun]] = {}
    notes: list[str] = []
    for run in runs:
        why_not, remark = _fits(run, shape)
        if why_not:
            notes.append(f"{run.file}: not used: {why_not}")
            continue
        if remark:
            notes.append(f"{run.file}: {remark}")
        by_kind.setdefault((run.operation, run.degree_from, run.degree_to), []).append(run)
    curves, sources = [], []
    for (operation, degree_from, degree_to), same in sorted(by_kind.items()):
        points = _merged(same)
        curves.append(Curve(operation=operation, degree_from=degree_from, degree_to=degree_to, points=points))
        files = ", ".join(dict.fromkeys(run.file for run in same))
        sources.append(f"{files}: {same[0].num_nodes} x {same[0].ranks_per_node} ranks, out of place")
        notes += [
            f"{files}: {later.bytes} bytes took {later.seconds * 1e6:.4g} us, less than {before.bytes} bytes "
            f"({before.seconds * 1e6:.4g} us); noise, or the library changed its algorithm"
            for before, later in pairwise(points)
            if later.seconds < _FALLS * before.seconds
        ]
    used = dict.fromkeys(run.file for run in runs if any(run in same for same in by_kind.values()))
    return ReadCurves(tuple(curves), tuple(sources), tuple(used), tuple(notes))


def _fits(run: CollectiveRun, shape: Shape) -> tuple[str, str]:
    """Returns why `run` is no curve of the machine ("" if it is), and what is to be said of one that is."""
    per_node = shape.ranks_per_node
    largest_bytes = run.points[-1].bytes
    if largest_bytes < _LEAST_BYTES:
        return (
            f"its largest message has {largest_bytes:,} bytes, which tells no bandwidth; run it up to 1 GiB (-e 1G)"
        ), ""
    remark = ""
    if run.points[0].bytes > _LEAST_BYTES:
        remark = f"its smallest message has {run.points[0].bytes:,} bytes, so that start-ups are not measured (-b 1K)"
    is_inside = run.num_nodes == 1 and run.degree_from == 1 and shape.inner[0] % run.degree_to == 0
    if run.ranks_per_node < per_node:
        if not is_inside:
            ranks = "one rank" if run.ranks_per_node == 1 else f"{run.ranks_per_node} ranks"
            return (
                f"it ran {ranks} of {per_node} on each node, so that its groups had the network for themselves; a "
                f"curve is of all groups at once (NCCL_TESTS_SPLIT='MOD {per_node}' with all ranks measures them)"
            ), ""
        silent = (
            f"{run.num_ranks} of {per_node} ranks ran; the others were silent, which makes no difference inside a "
            f"{'node' if len(shape.inner) == 1 else 'package'}"
        )
        remark = f"{silent}; {remark}" if remark else silent
    for degree in (run.degree_from, run.degree_to):
        if fill(shape.sizes, degree) is None:
            sizes = " x ".join(str(size) for size in shape.sizes)
            hint = ""
            if run.num_nodes > 1:
                hint = f"; a profile of {run.num_nodes} nodes has their curves and serves any number, by `plan --nodes`"
            return f"groups of {degree} ranks do not fill whole units of the levels {sizes}{hint}", ""
    return "", remark


def _merged(runs: Sequence[CollectiveRun]) -> tuple[CurvePoint, ...]:
    by_size: dict[int, list[CurvePoint]] = {}
    for run in runs:
        for point in run.points:
            by_size.setdefault(point.bytes, []).append(point)
    return tuple(_median(points) for _, points in sorted(by_size.items()))


def _median(points: Sequence[CurvePoint]) -> CurvePoint:
    if len(points) == 1:
        return points[0]
    return CurvePoint(
        bytes=points[0].bytes,
        seconds=float(f"{statistics.median(point.seconds for point in points):.6g}"),
        repetitions=sum(point.repetitions or 1 for point in points),
    )
