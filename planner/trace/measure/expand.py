"""Tells which segment of a shorter model stands for each segment of the whole one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from planner.trace.measure.amounts import MismatchError
from planner.trace.measure.truncate import Shortening, ShortList


class Origin(NamedTuple):
    """One segment of the whole model."""

    block: str
    """Its block there."""
    segment: int
    """The segment of the shorter model that it equals."""
    template: str = ""
    """The layer that this one was in the shorter model ..."""
    member: str = ""
    """... and the layer that it is; both empty for what belongs to none."""


def expand(segments: Sequence[tuple[str, str]], shortening: Shortening) -> list[Origin]:
    """Returns the segments of the whole model in order of execution.

    Args:
        segments: (block, phase) of each segment of the shorter model, all of forward first.
        shortening: What it has of the whole model.

    Raises:
        MismatchError: The layers of a list do not run one after the other.
    """
    layers = frozenset(member for one in shortening.lists for member in one.members)
    found: list[Origin] = []
    for phase in ("forward", "backward"):
        part = [Origin(block, index) for index, (block, of) in enumerate(segments) if of == phase]
        for one in shortening.lists:
            part = _with_all(part, one, layers, backward=phase == "backward")
        found += part
    return found


def _with_all(part: list[Origin], one: ShortList, layers: frozenset[str], *, backward: bool) -> list[Origin]:
    """Returns one phase with all layers of a list in it."""
    runs = [_run(part, member) for member in one.kept]
    order = [number for number in range(one.num_kept) if runs[number]]
    if backward:
        order.reverse()
    if not order:
        return part
    pairs = list(pairwise(order))
    if any(runs[first].stop > runs[then].start for first, then in pairs):
        raise MismatchError
    gaps = {max(first, then): part[runs[first].stop : runs[then].start] for first, then in pairs}
    if any(piece.block in layers for gap in gaps.values() for piece in gap):
        raise MismatchError
    numbers = range(len(one.members))
    found = part[: runs[order[0]].start]
    before = None
    for number in reversed(numbers) if backward else numbers:
        counterpart = one.counterpart(number)
        if not runs[counterpart]:
            continue
        if before is not None:
            # What runs between two layers is known by the later one of the list.
            found += gaps.get(one.counterpart(max(before, number)), [])
        template, member = one.members[counterpart], one.members[number]
        for piece in part[runs[counterpart].start : runs[counterpart].stop]:
            block = member if piece.block == template else piece.block
            found.append(Origin(block, piece.segment, template, member))
        before = number
    return found + part[runs[order[-1]].stop :]


def _run(part: list[Origin], member: str) -> range:
    """Returns where the layer runs, with all that runs in between."""
    mine = [position for position, piece in enumerate(part) if piece.block == member]
    return range(mine[0], mine[-1] + 1) if mine else range(0)
