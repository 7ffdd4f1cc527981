"""Trains, saves and goes on elsewhere: what the ranks of the tests of checkpoints run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from fsdp_training import Tiny, blocks_of, plan_of
from torch import nn

from runtime.checkpoint.load import load
from runtime.checkpoint.save import save
from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard

GLOBAL_BATCH = 24
"""Samples of a step: 8, 6, 4 and 2 ranks have equal parts."""

Degrees = tuple[int, int, int, int]
"""p, s, g, o."""


class Odd(Tiny):
    """Tied, partly frozen, and with buffers, one of which the forward uses."""

    def __init__(self) -> None:
        super().__init__(tied=True)
        self.layers[1].up.weight.requires_grad_(False)
        self.layers[2].requires_grad_(False)
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 1.5, 2.0]).repeat(4))
        self.register_buffer("num_batches", torch.tensor(3))
        self.register_buffer("scratch", torch.zeros(5), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the loss of guessing each token's successor."""
        x = self.embed(tokens) * self.scale
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())


def samples_of(step: int, part: int, num_parts: int) -> torch.Tensor:
    """Returns one of equal parts of the samples of a step."""
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, 40, (GLOBAL_BATCH, 9), generator=generator).chunk(num_parts)[part]


def make_odd(degrees: Degrees, precision: str, num_micro_batches: int = 1, seed: int = 0) -> ShardedOptimizer:
    """Returns the training of an `Odd` model, with two groups and clipping."""
    torch.manual_seed(seed)
    model = Odd()
    sharded = shard(model, plan_of(blocks_of(model), degrees, num_micro_batches, precision, dist.get_world_size()))
    decayed = [name for name, each in model.named_parameters() if each.requires_grad and "weight" in name]
    others = [name for name, each in model.named_parameters() if each.requires_grad and "weight" not in name]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "lr": 3e-3, "weight_decay": 0.0}]
    return ShardedOptimizer(sharded, torch.optim.AdamW, groups, max_norm=0.5, lr=1e-3)


def scheduler_of(optimizer: ShardedOptimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Returns a schedule that changes the rates in every step."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def train_odd(optimizer: ShardedOptimizer, scheduler: Any, first: int, last: int) -> list[float]:
    """Returns the losses of steps."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    parts = optimizer.num_micro_batches * world_size
    losses = []
    for step in range(first, last):
        mean = torch.zeros(())
        for micro_batch in range(optimizer.num_micro_batches):
            loss = optimizer.sharded.model(samples_of(step, rank + micro_batch * world_size, parts))
            optimizer.backward(loss)
            mean += loss.detach().float() / parts
        optimizer.step()
        scheduler.step()
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def save_after_5(folder: str, degrees: Degrees, precision: str) -> list[float]:
    """Returns the 5 losses after the checkpoint."""
    optimizer = make_odd(degrees, precision)
    scheduler = scheduler_of(optimizer)
    train_odd(optimizer, scheduler, 0, 5)
    optimizer.sharded.model.scale += 0.25
    save(optimizer, folder, step=5, extra={"scheduler": scheduler.state_dict()})
    return train_odd(optimizer, scheduler, 5, 10)


def go_on(folder: str, degrees: Degrees, precision: str, num_micro_batches: int = 1) -> list[float]:
    """Returns the 5 losses after the checkpoint, of another model that loads it."""
    optimizer = make_odd(degrees, precision, num_micro_batches, seed=1)
    scheduler = scheduler_of(optimizer)
    loaded = load(optimizer, folder)
    assert loaded.step == 5
    scheduler.load_state_dict(loaded.extra["scheduler"])
    return train_odd(optimizer, scheduler, 5, 10)


def save_again(folder: str, degrees: Degrees, precision: str, into: str) -> None:
    """Loads a checkpoint under a plan and saves what came of it."""
    optimizer = make_odd(degrees, precision, seed=1)
    loaded = load(optimizer, folder)
    save(optimizer, into, step=loaded.step, extra=loaded.extra)


def make_engine(stage: int, precision: str, seed: int = 0, zero: Mapping[str, Any] | None = None) -> Any:
    """Returns a DeepSpeed engine around a plain model: DeepSpeed 0.19.8 leaves no model partly frozen unharmed."""
    os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": str(dist.get_rank())}
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(seed)
    model = Tiny()
    world_size = dist.get_world_size()
    config = {
        "train_micro_batch_size_per_gpu": GLOBAL_BATCH // world_size,
        "gradient_accumulation_steps": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1, "torch_adam": True}},
        "zero_optimization": {"stage": stage, **(zero or {})},
        "gradient_clipping": 0.5,
        "zero_force_ds_cpu_optimizer": False,
    }
    if precision != "fp32":
        config[precision] = {"enabled": True}
    if precision == "bf16":
        config["data_types"] = {"grad_accum_dtype": "fp32" if stage == 1 else "bf16"}
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    return engine


def train_engine(engine: Any, first: int, last: int) -> list[float]:
    """Returns the losses of steps."""
    losses = []
    for step in range(first, last):
        loss = engine(samples_of(step, dist.get_rank(), dist.get_world_size()))
        engine.backward(loss)
        engine.step()
        mean = loss.detach().float() / dist.get_world_size()
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def make_plain(degrees: Degrees, precision: str, seed: int = 0) -> ShardedOptimizer:
    """Returns the training that `make_engine` does, by the runtime."""
    torch.manual_seed(seed)
    model = Tiny()
    sharded = shard(model, plan_of(blocks_of(model), degrees, 1, precision, dist.get_world_size()))
    return ShardedOptimizer(sharded, torch.optim.AdamW, max_norm=0.5, lr=1e-3, weight_decay=0.1)


def train_plain(optimizer: ShardedOptimizer, first: int, last: int) -> list[float]:
    """Returns the losses of steps."""
    losses = []
    for step in range(first, last):
        loss = optimizer.sharded.model(samples_of(step, dist.get_rank(), dist.get_world_size()))
        optimizer.backward(loss)
        optimizer.step()
        mean = loss.detach().float() / dist.get_world_size()
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def save_plain_after_5(folder: str, degrees: Degrees, precision: str) -> list[float]:
    """Returns the 5 losses after the checkpoint."""
    optimizer = make_plain(degrees, precision)
    train_plain(optimizer, 0, 5)
    save(optimizer, folder, step=5)
    return train_plain(optimizer, 5, 10)


def go_on_plain(folder: str, degrees: Degrees, precision: str) -> list[float]:
    """Returns the 5 losses after the checkpoint."""
    optimizer = make_plain(degrees, precision, seed=1)
    assert load(optimizer, folder).step == 5
    return train_plain(optimizer, 5, 10)


def go_on_in_engine(folder: str, stage: int, precision: str, zero: Mapping[str, Any] | None = None) -> list[float]:
    """Returns the 5 losses after the checkpoint, by DeepSpeed."""
    engine = make_engine(stage, precision, seed=1, zero=zero)
    assert load(engine, folder).step == 5
    return train_engine(engine, 5, 10)


def save_engine_after_5(folder: str, stage: int, precision: str, zero: Mapping[str, Any] | None = None) -> list[float]:
    """Returns the 5 losses after the checkpoint, by DeepSpeed."""
    engine = make_engine(stage, precision, zero=zero)
    train_engine(engine, 0, 5)
    save(engine, folder, step=5)
    return train_engine(engine, 5, 10)


def save_engine_again(folder: str, stage: int, precision: str, into: str) -> None:
    """Loads a checkpoint into DeepSpeed, used before, and saves what came of it."""
    engine = make_engine(stage, precision, seed=1)
    train_engine(engine, 0, 2)
    loaded = load(engine, folder)
    save(engine, into, step=loaded.step, extra=loaded.extra)


def tensors_of(folder: str | Path) -> dict[str, torch.Tensor]:
    """Returns all tensors of the last checkpoint, whole."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    from runtime.checkpoint.folder import find_checkpoint
    from runtime.checkpoint.load import read
    from runtime.checkpoint.ranges import Range

    path = find_checkpoint(folder)
    saved = FileSystemReader(path).read_metadata().state_dict_metadata
    found = {
        key: torch.empty(each.size, dtype=each.properties.dtype)
        for key, each in saved.items()
        if hasattr(each, "properties")
    }
    read(path, [Range(key, each.numel(), 0, each, False) for key, each in found.items()], None)
    return found
