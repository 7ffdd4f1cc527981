"""The process groups between two degrees, each made once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Literal

import torch.distributed as dist

Lane = Literal["gather", "reduce"]
"""Messages of two lanes do not wait for each other: each has communicators of its own."""


_NUMBERS = count()
"""Of what ranks have agreed on, in the order in which all of them do."""


class Groups:
    """Makes the group of this rank between two degrees when it is first asked for.

    Every rank must ask for the same degrees in the same order.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._made: dict[tuple[int, int, Lane], dist.ProcessGroup] = {}
        self._num_agreed = 0

    def between(self, inner: int, outer: int, lane: Lane) -> dist.ProcessGroup:
        """Returns the outer/inner ranks that are equal to this one modulo `inner` in one block of `outer` ranks."""
        key = (inner, outer, lane)
        if key not in self._made:
            if (inner, outer, lane) == (1, self.world_size, "reduce"):
                self._made[key] = dist.group.WORLD  # type: ignore[assignment]
            else:
                first = self.rank // outer * outer + self.rank % inner
                # Only members make it: on many ranks there are thousands of groups between two degrees.
                self._made[key] = dist.new_group(
                    list(range(first, first + outer, inner)),
                    use_local_synchronization=True,
                    group_desc=f"{lane} between {inner} and {outer}",
                )
        return self._made[key]

    def agree(self, numbers: Sequence[int]) -> list[int]:
        """Returns the numbers that rank 0 gives, by way of the process group's store: it is no message of a step."""
        store = dist.distributed_c10d._get_default_store()
        key = f"shardplan/agreed/{next(_NUMBERS)}"
        if self.rank == 0:
            store.set(key, ",".join(map(str, numbers)))
        return [int(number) for number in store.get(key).decode().split(",") if number]

    def close(self) -> None:
        """Frees the communicators. What is sharded with them cannot go on."""
        for group in self._made.values():
            if group is not dist.group.WORLD:
                dist.destroy_process_group(group)
        self._made.clear()
