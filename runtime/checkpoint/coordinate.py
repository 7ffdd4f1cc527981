"""The ranks' talk about a checkpoint: over gloo, apart from that of training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from runtime.ranks import LaunchError

T = TypeVar("T")

_groups: list[tuple[Any, Any]] = []
"""The world and the group made for it: at most one."""


def checkpoint_group() -> Any:
    """Returns the group of all ranks that checkpoints use, made by the first call; None without `torch.distributed`.

    It has no part in training, so that a thread can write while training goes on.
    """
    if not dist.is_initialized():
        return None
    if not _groups or _groups[0][0] is not dist.group.WORLD:
        _groups[:] = [(dist.group.WORLD, dist.new_group(backend="gloo", group_desc="checkpoints"))]
    return _groups[0][1]


def together(group: Any, act: Callable[[], T]) -> T:
    """Returns what `act` does on this rank; where it fails on one rank, it fails on all.

    Raises:
        LaunchError: Of the first rank on which it failed.
    """
    result: Any = None
    failure = None
    try:
        result = act()
    except (LaunchError, OSError) as error:
        failure = str(error)
    if group is None:
        failures = [failure]
    else:
        failures = [None] * dist.get_world_size(group)
        dist.all_gather_object(failures, failure, group=group)
    for rank, text in enumerate(failures):
        if text is not None:
            raise LaunchError(text if failure is not None else f"rank {rank}: {text}")
    return result  # type: ignore[no-any-return]


def reasons(error: CheckpointException) -> str:
    """Returns what went wrong on the first rank of those where something did."""
    rank = min(error.failures)
    cause = error.failures[rank][0]
    what = str(cause) if isinstance(cause, LaunchError | OSError) else f"{type(cause).__name__}: {cause}"
    others = f" (and on {len(error.failures) - 1} more ranks)" if len(error.failures) > 1 else ""
    return f"rank {rank}: {what}{others}"
