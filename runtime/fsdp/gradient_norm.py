"""The norm of the gradients of a step, by which they are clipped, and an overflow is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.fsdp.groups import Groups
from runtime.fsdp.unit import Unit


def gradient_norm(units: Sequence[Unit], slices: Mapping[str, Tensor], groups: Groups) -> Tensor:
    """Returns the norm of the summed gradients of all parameters, the same on all ranks: one message of 4 bytes.

    Args:
        units: Blocks that are trained.
        slices: What this rank updates of each parameter, by name, with its gradient.
        groups: Of this rank.
    """
    world_size = groups.world_size
    total = torch.zeros((), dtype=torch.float32, device=next(iter(slices.values())).device)
    for unit in units:
        grads = [slices[name].grad for name in unit.names]
        squares = torch.stack([grad.float().square().sum() for grad in grads if grad is not None]).sum()
        # Each slice is on world / o ranks.
        total += squares * (unit.strategy.optim_degree / world_size)
    dist.all_reduce(total, group=groups.between(1, world_size, "reduce"))
    return total.sqrt()
