"""Training by the runtime and by one process, on the same batches: what the ranks of the tests run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan
from runtime.record_traffic import RecordTraffic

NUM_STEPS = 10
SAMPLES = 2
"""Per micro-batch and rank."""


class Layer(nn.Module):
    """A residual block of which some parameters divide by 8 ranks and some do not."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns x and what the layer adds."""
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Tiny(nn.Module):
    """An embedding, equal layers, a norm and a head, that may be tied to the embedding."""

    def __init__(self, width: int = 16, num_layers: int = 3, tied: bool = False, vocabulary: int = 40) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=not tied)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the loss of guessing each token's successor."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())


def blocks_of(model: Tiny) -> tuple[str, ...]:
    """Returns the names of its blocks."""
    names = ["embed", *(f"layers.{number}" for number in range(len(model.layers))), "norm", "head"]
    return tuple(name for name in names if name != "head" or model.head.weight is not model.embed.weight)


def plan_of(
    blocks: Sequence[str], degrees: tuple[int, int, int, int], num_micro_batches: int, precision: str, world_size: int
) -> ShardingPlan:
    """Returns the plan with one (p, s, g, o) for all blocks."""
    return ShardingPlan(
        (BlockStrategy(tuple(blocks), *degrees),),
        world_size,
        4,
        num_micro_batches,
        precision,
        (2, 2, 2),  # type: ignore[arg-type]
    )


def tokens_of(step: int, micro_batch: int, rank: int, vocabulary: int = 40) -> torch.Tensor:
    """Returns the tokens of one rank in one micro-batch."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * micro_batch + 100_003 * rank)
    return torch.randint(0, vocabulary, (SAMPLES, 9), generator=generator)


def train_alone(
    make: Callable[[], nn.Module],
    world_size: int,
    num_micro_batches: int,
    make_optimizer: Callable[..., Any],
    max_norm: float = 0.0,
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Returns the losses and the parameters of one process that trains on all ranks' samples."""
    torch.manual_seed(0)
    model = make()
    optimizer = make_optimizer(model)
    losses = []
    for step in range(NUM_STEPS):
        total = 0.0
        for micro_batch in range(num_micro_batches):
            for rank in range(world_size):
                loss = model(tokens_of(step, micro_batch, rank)) / (world_size * num_micro_batches)
                loss.backward()
                total += loss.item()
        losses.append(total)
        if max_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        optimizer.zero_grad()
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}


def train_sharded(
    make: Callable[[], nn.Module], plan: ShardingPlan, optimizer_of: Callable[[Any], ShardedOptimizer]
) -> dict[str, Any]:
    """Trains on this rank, and returns losses, whole parameters, and the traffic of one step more."""
    torch.manual_seed(0)
    model = make()
    sharded = shard(model, plan)
    optimizer = optimizer_of(sharded)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    losses = []
    for step in range(NUM_STEPS):
        mean = torch.zeros(())
        for micro_batch in range(plan.num_micro_batches):
            loss = model(tokens_of(step, micro_batch, rank))
            optimizer.backward(loss)
            mean += loss.detach().float() / (plan.num_micro_batches * world_size)
        optimizer.step()
        dist.all_reduce(mean)
        losses.append(mean.item())
    sharded.synchronize()
    parameters = {name: _whole(parameter) for name, parameter in model.named_parameters()}
    with RecordTraffic() as traffic:
        for micro_batch in range(plan.num_micro_batches):
            optimizer.backward(model(tokens_of(NUM_STEPS, micro_batch, rank)))
        optimizer.step()
        sharded.synchronize()
    return {"losses": losses, "parameters": parameters, "traffic": traffic.totals()}


def _whole(parameter: Any) -> torch.Tensor:
    full = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
    return full.detach().clone()


def adamw(sharded: Any) -> ShardedOptimizer:
    """The optimizer of most tests."""
    return ShardedOptimizer(sharded, torch.optim.AdamW, lr=1e-2)
