"""What the ranks of the tests of quantized messages run: it imports no more than they need."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from fsdp_training import ADAMW, Tiny, train_sharded

from runtime.fsdp.groups import Groups
from runtime.fsdp.layout import lay_out
from runtime.fsdp.quantized_reduction import QuantizedReduction
from runtime.fsdp.shard import shard
from runtime.fsdp.strategies import ShardingPlan
from runtime.ranks import LaunchError


def trained(plan: ShardingPlan, num_steps: int, width: int) -> dict[str, Any]:
    """Returns losses, parameters and traffic."""
    return train_sharded(partial(Tiny, width=width), plan, replace(ADAMW, num_steps=num_steps))


def reduce_constants(p: int, g: int, o: int, node: int, feedback: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the shard of a reduction, and what is expected: blocks of equal numbers are quantized exactly."""
    rank = dist.get_rank()
    layout = lay_out([(24, 11), (5,), (700,)], p, g, o)
    reduction = QuantizedReduction(layout, Groups(), node, torch.device("cpu"), feedback)

    def sent_by(each: int) -> torch.Tensor:
        return (1.0 + torch.arange(o) + 100 * each).repeat_interleave(layout.slice_elements)

    shard_ = torch.empty(layout.shard_elements)
    for _ in reduction.reduce(sent_by(rank), shard_):
        pass
    first = rank // g * g
    whole = torch.stack([sent_by(each) for each in range(first, first + g)]).sum(0)
    return shard_, whole.view(g, -1)[rank % g]


def error_of_a_sum(node: int) -> list[float]:
    """Returns the error of the sum of 20 equal reductions, without and with error feedback, relative to one of them."""
    rank, times = dist.get_rank(), 20
    layout = lay_out([(64, 128)], 8, 8, 8)
    full = torch.randn(layout.full_elements, generator=torch.Generator().manual_seed(rank))
    expected = torch.empty(layout.shard_elements)
    dist.reduce_scatter_single(expected, full)
    errors = []
    for feedback in (False, True):
        reduction = QuantizedReduction(layout, Groups(), node, torch.device("cpu"), feedback)
        total = torch.zeros_like(expected)
        for _ in range(times):
            part = torch.empty_like(expected)
            for _ in reduction.reduce(full.clone(), part):
                pass
            total += part
        errors.append(((total - times * expected).norm() / expected.norm()).item())
    return errors


def refused(plan: ShardingPlan) -> str:
    try:
        shard(Tiny(), plan)
    except LaunchError as error:
        return " ".join(str(error).split())
    return ""
