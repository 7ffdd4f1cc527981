"""Measures the collectives of every kind of group, a piece for each operation. Runs on every rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from hw_profiles.measure.effort import effort_per_curve, kinds_to_time
from hw_profiles.measure.pieces import Pieces
from hw_profiles.measure.ranks import Ranks
from hw_profiles.measure.time_collectives import limit_bytes, own_group, time_collective
from hw_profiles.measure.time_memory import free_bytes
from hw_profiles.schema import OPERATIONS, Curve, CurvePoint, Operation


def measure_curves(ranks: Ranks, pieces: Pieces, sizes: Sequence[int], quick: bool) -> tuple[Curve, ...]:
    """Returns the curves of all operations over all kinds of group that levels of these sizes have."""
    kinds = kinds_to_time(sizes, quick)
    effort = effort_per_curve(quick, len(kinds) * len(OPERATIONS))
    largest_bytes = pieces.take("free memory", "free memory", 0.1, lambda: limit_bytes(free_bytes(ranks)))
    found = []
    for degree_from, degree_to in kinds:
        group = _Group(ranks, degree_from, degree_to)
        for operation in OPERATIONS:

            def points(operation: Operation = operation, group: _Group = group) -> list[object]:
                curve = time_collective(operation, group.made(), ranks, effort, largest_bytes)
                return [point.model_dump(mode="json") for point in curve]

            values = pieces.take(
                f"{operation} {degree_from} {degree_to}",
                f"{operation} between {degree_from} and {degree_to}",
                effort.seconds_per_curve,
                points,
            )
            known = tuple(CurvePoint.model_validate(value) for value in values)
            found.append(Curve(operation=operation, degree_from=degree_from, degree_to=degree_to, points=known))
        group.close()
    return tuple(found)


class _Group:
    """This rank's group of a kind, which is made when something of it is to be measured."""

    def __init__(self, ranks: Ranks, degree_from: int, degree_to: int) -> None:
        self._ranks, self._degrees = ranks, (degree_from, degree_to)
        self._group: dist.ProcessGroup | None = None

    def made(self) -> dist.ProcessGroup:
        """Returns the group."""
        if self._group is None:
            self._group = own_group(self._ranks, *self._degrees)
        return self._group

    def close(self) -> None:
        """Ends the group, if it was made."""
        if self._group is not None:
            self._ranks.together()
            dist.destroy_process_group(self._group)
