"""The process groups between two degrees, each made once in a process."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Literal

import torch.distributed as dist

Lane = Literal["gather", "reduce"]
"""Messages of two lanes do not wait for each other: each has communicators of its own."""

_MADE: dict[tuple[int, int, Lane], tuple[object, dist.ProcessGroup]] = {}
"""The groups of this process, each with the world that it is part of: models that are sharded one after the other share
them, as each costs threads or memory of a device."""
_NUMBERS = count()
"""Of what ranks have agreed on, in the order in which all of them do."""


class Groups:
    """Makes the group of this rank between two degrees when it is first asked for.

    Every rank must ask for the same degrees in the same order.
    """

    def __init__(self, level_sizes: Sequence[int] = ()) -> None:
        """Takes the sizes of the machine's levels, inner first."""
        self._level_sizes = tuple(level_sizes)
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def between(self, inner: int, outer: int, lane: Lane) -> dist.ProcessGroup:
        """Returns the outer/inner ranks that are equal to this one modulo `inner` in one block of `outer` ranks."""
        key = (inner, outer, lane)
        world = dist.group.WORLD
        if key in _MADE and _MADE[key][0] is world:
            return _MADE[key][1]
        if key == (1, self.world_size, "reduce"):
            assert world is not None
            return world
        first = self.rank // outer * outer + self.rank % inner
        # Only members make it: on many ranks there are thousands of groups between two degrees.
        group: dist.ProcessGroup = dist.new_group(
            list(range(first, first + outer, inner)),
            use_local_synchronization=True,
            group_desc=f"{lane} between {inner} and {outer}",
        )
        _MADE[key] = world, group
        return group

    def stops(self, inner: int, outer: int, *, hierarchical: bool) -> tuple[int, ...]:
        """Returns the degrees that a message from `inner` to `outer` stops at: these two, or the ends of levels too."""
        return stops_between(inner, outer, self._level_sizes if hierarchical else ())

    def agree(self, numbers: Sequence[int]) -> list[int]:
        """Returns the numbers that rank 0 gives, by way of the process group's store: it is no message of a step."""
        store = dist.distributed_c10d._get_default_store()
        key = f"shardplan/agreed/{next(_NUMBERS)}"
        if self.rank == 0:
            store.set(key, ",".join(map(str, numbers)))
        return [int(number) for number in store.get(key).decode().split(",") if number]


def stops_between(inner: int, outer: int, level_sizes: Sequence[int]) -> tuple[int, ...]:
    """Returns the degrees from `inner` to `outer` at which levels end, both of them included.

    Args:
        inner: a.
        outer: b, a multiple of a.
        level_sizes: of the machine, inner first; none: one stage for all.
    """
    stops = [inner]
    end = 1
    for size in level_sizes:
        end *= size
        if inner < end < outer and end % stops[-1] == 0 and outer % end == 0:
            stops.append(end)
    return (*stops, outer)
