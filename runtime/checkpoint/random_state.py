"""The random state of each rank: dropout goes on as it would have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from runtime.ranks import LaunchError


def random_state(group: Any) -> list[dict[str, torch.Tensor]]:
    """Returns the state of torch's generators on every rank."""
    own = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        own["cuda"] = torch.cuda.get_rng_state()
    if group is None:
        return [own]
    states: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(states, own, group=group)
    return states


def set_random_state(states: Sequence[dict[str, torch.Tensor]] | None) -> None:
    """Goes on with this rank's saved state.

    Raises:
        LaunchError: None was saved, or on another number of ranks.
    """
    if states is None:
        raise LaunchError("the checkpoint has no random states: save it with rng=True, or load with rng=False")
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if len(states) != world_size:
        raise LaunchError(
            f"the checkpoint has the random states of {len(states)} ranks, and {world_size} run: load with rng=False"
        )
    torch.set_rng_state(states[rank]["cpu"])
    if torch.cuda.is_available() and "cuda" in states[rank]:
        torch.cuda.set_rng_state(states[rank]["cuda"])
