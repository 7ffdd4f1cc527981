"""Models that are made without memory, and get it as they are sharded: what the ranks of the tests run."""

from __future__ import annotations

import torch
import torch.distributed as dist
from fsdp_odd_models import WithOdd
from fsdp_training import Tiny, blocks_of, plan_of, train_step, whole_parameters
from torch import Tensor, nn

from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard
from runtime.ranks import LaunchError
from runtime.record_memory import MemoryRecorder, MemoryUse
from runtime.weights import parameters_without_memory

WIDTH, NUM_LAYERS = 256, 8
Degrees = tuple[int, int, int, int]


def wide() -> Tiny:
    """Returns a model whose layers are most of it."""
    return Tiny(width=WIDTH, num_layers=NUM_LAYERS, vocabulary=40)


def build_without_memory(degrees: Degrees, precision: str) -> tuple[MemoryUse, int, int]:
    """Returns the memory of building, the model's parameters, and those of its largest block."""
    with MemoryRecorder(torch.device("cpu")) as memory:
        with parameters_without_memory():
            model = wide()
        num_params = sum(parameter.numel() for parameter in model.parameters())
        largest = max(sum(each.numel() for each in block.parameters()) for block in (model.embed, *model.layers))
        sharded = shard(model, plan_of(blocks_of(model), degrees, 1, precision, dist.get_world_size()))
        memory.built()
        optimizer = ShardedOptimizer(sharded, torch.optim.AdamW, lr=1e-3)
        for step in range(2):
            train_step(model, optimizer, step)
            memory.step_ended()
    return memory.use(), num_params, largest


def train_from_meta(degrees: Degrees, filling: bool) -> dict[str, Tensor]:
    """Trains a model made on "meta", with the values of a seed's model, or with those that modules give themselves."""
    torch.manual_seed(0)
    values = dict(Tiny().named_parameters()) if filling else {}

    def fill(name: str, parameter: Tensor) -> None:
        parameter.copy_(values[name])

    with torch.device("meta"):
        model = Tiny()
    torch.manual_seed(1)
    sharded = shard(
        model, plan_of(blocks_of(model), degrees, world_size=dist.get_world_size()), fill=fill if filling else None
    )
    optimizer = ShardedOptimizer(sharded, torch.optim.AdamW, lr=1e-3)
    for step in range(3):
        train_step(model, optimizer, step)
    return whole_parameters(sharded)


def refusals() -> list[str]:
    """Returns why models cannot be given memory."""
    found = []
    for make, blocks in ((WithOdd, ("", *blocks_of(WithOdd()))), (_with_buffer, ("0", "1"))):
        with torch.device("meta"):
            model = make()
        try:
            shard(model, plan_of(blocks, (2, 2, 2, 2), world_size=dist.get_world_size()))
        except LaunchError as error:
            found.append(str(error))
    return found


def _with_buffer() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
