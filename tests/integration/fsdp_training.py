"""Training by the runtime and by one process, on the same batches: what the ranks of the tests run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

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

    def forward(self, x: Tensor) -> Tensor:
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

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the loss of guessing each token's successor."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return guessed(self.head(self.norm(x)), tokens)


def guessed(logits: Tensor, tokens: Tensor) -> Tensor:
    """Returns the mean loss of logits (samples, length, vocabulary) that guess each token's successor."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())


def blocks_of(model: nn.Module) -> tuple[str, ...]:
    """Returns the names of the blocks of a model like `Tiny`."""
    names = ["embed", *(f"layers.{number}" for number in range(len(model.layers))), "norm", "head"]  # type: ignore
    tied = model.head.weight is model.embed.weight and model.head.bias is None  # type: ignore
    return tuple(name for name in names if name != "head" or not tied)


def plan_of(
    blocks: Sequence[str],
    degrees: tuple[int, int, int, int],
    num_micro_batches: int = 1,
    precision: str = "fp32",
    world_size: int = 8,
) -> ShardingPlan:
    """Returns the plan with one (p, s, g, o) for all blocks."""
    return mixed_plan({tuple(blocks): degrees}, num_micro_batches, precision, world_size)


def mixed_plan(
    degrees: Mapping[tuple[str, ...], tuple[int, int, int, int]],
    num_micro_batches: int = 1,
    precision: str = "fp32",
    world_size: int = 8,
    **others: Any,
) -> ShardingPlan:
    """Returns the plan with a (p, s, g, o) for each class of blocks."""
    return ShardingPlan(
        strategies=tuple(BlockStrategy(blocks, *each) for blocks, each in degrees.items()),
        world_size=world_size,
        ranks_per_node=min(4, world_size),
        num_micro_batches=num_micro_batches,
        precision=precision,  # type: ignore[arg-type]
        level_sizes=(2, 2, world_size // 4) if world_size >= 4 else (world_size,),
        **others,
    )


def tokens_of(step: int, micro_batch: int, rank: int, vocabulary: int = 40) -> Tensor:
    """Returns the tokens of one rank in one micro-batch."""
    generator = torch.Generator().manual_seed(1000 * step + 10 * micro_batch + 100_003 * rank)
    return torch.randint(0, vocabulary, (SAMPLES, 9), generator=generator)


def _one_group(_: str) -> int:
    return 0


def _called(model: nn.Module, batch: Any) -> Tensor:
    loss: Tensor = model(batch)
    return loss


@dataclass(frozen=True)
class Recipe:
    """How to train: the same words for one process and for the runtime."""

    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    groups: tuple[Mapping[str, Any], ...] = ({},)
    """Options of each parameter group."""
    group_of: Callable[[str], int] = _one_group
    """The group of a parameter's name."""
    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None
    max_norm: float = 0.0
    num_steps: int = NUM_STEPS
    batch_of: Callable[[int, int, int], Any] = tokens_of
    """What the model is called with, of a step, a micro-batch and a rank."""
    loss_of: Callable[[nn.Module, Any], Tensor] = _called
    """How it is called."""
    before_step: Callable[[nn.Module, int], None] | None = None
    """What is done to the model before the forwards of a step."""

    def groups_of(self, model: nn.Module) -> list[dict[str, Any]]:
        """Returns the parameter groups of the model."""
        found = [{"params": [], **options} for options in self.groups]
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                found[self.group_of(name)]["params"].append(parameter)
        return found


ADAMW = Recipe(groups=({"lr": 1e-3},))
"""The recipe of most tests: torch's own learning rate."""


def train_alone(
    make: Callable[[], nn.Module], num_micro_batches: int = 1, recipe: Recipe = ADAMW, world_size: int = 8
) -> tuple[list[float], dict[str, Tensor]]:
    """Returns the losses and the parameters of one process that trains on all ranks' samples.

    Parameters without a gradient get one of zeros, as they have under the runtime.
    """
    torch.manual_seed(0)
    model = make()
    optimizer = recipe.optimizer(recipe.groups_of(model))
    scheduler = recipe.scheduler(optimizer) if recipe.scheduler else None
    losses = []
    for step in range(recipe.num_steps):
        if recipe.before_step:
            recipe.before_step(model, step)
        total = 0.0
        for micro_batch in range(num_micro_batches):
            for rank in range(world_size):
                loss = recipe.loss_of(model, recipe.batch_of(step, micro_batch, rank))
                loss = loss / (world_size * num_micro_batches)
                loss.backward()
                total += loss.item()
        losses.append(total)
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if recipe.max_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_norm)
        optimizer.step()
        optimizer.zero_grad()
        if scheduler:
            scheduler.step()
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}


def train_sharded(make: Callable[[], nn.Module], plan: ShardingPlan, recipe: Recipe = ADAMW) -> dict[str, Any]:
    """Trains on this rank, and returns losses, whole parameters, and the traffic of one step more."""
    torch.manual_seed(0)
    model = make()
    sharded = shard(model, plan)
    optimizer = ShardedOptimizer(sharded, recipe.optimizer, recipe.groups_of(model), max_norm=recipe.max_norm)
    scheduler = recipe.scheduler(optimizer) if recipe.scheduler else None
    losses = []
    for step in range(recipe.num_steps):
        if recipe.before_step:
            recipe.before_step(model, step)
        losses.append(train_step(model, optimizer, step, recipe))
        if scheduler:
            scheduler.step()
    parameters = whole_parameters(sharded)
    with RecordTraffic() as traffic:
        train_step(model, optimizer, recipe.num_steps, recipe, with_loss=False)
        sharded.synchronize()
    return {"losses": losses, "parameters": parameters, "traffic": traffic.totals()}


def train_step(
    model: nn.Module,
    optimizer: ShardedOptimizer,
    step: int,
    recipe: Recipe = ADAMW,
    *,
    with_loss: bool = True,
) -> float:
    """Runs one step on this rank; returns the mean loss of all ranks."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mean = torch.zeros(())
    for micro_batch in range(optimizer.num_micro_batches):
        loss = recipe.loss_of(model, recipe.batch_of(step, micro_batch, rank))
        optimizer.backward(loss)
        mean += loss.detach().float() / (optimizer.num_micro_batches * world_size)
    optimizer.step()
    if with_loss:
        dist.all_reduce(mean)
    return mean.item()


def whole_parameters(sharded: Any) -> dict[str, Tensor]:
    """Returns the parameters of a sharded model as this rank has them once they are gathered."""
    sharded.synchronize()
    found = {}
    for name, parameter in sharded.model.named_parameters():
        full = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        found[name] = full.detach().clone()
    return found


def check_training(
    results: Sequence[Mapping[str, Any]],
    losses: Sequence[float],
    parameters: Mapping[str, Tensor],
    loss_tolerance: float = 1e-5,
    parameter_tolerance: float = 1e-5,
) -> None:
    """Asserts that all ranks trained as one process did.

    Args:
        results: What `train_sharded` returned on each rank.
        losses: Of one process.
        parameters: Of one process.
        loss_tolerance: Of each loss, relative to it.
        parameter_tolerance: Of each element, relative to the largest of its tensor, or to 1e-3 where that is less: the
            keys' biases of an attention stay at zero but for rounding.
    """
    for step, (found, expected) in enumerate(zip(results[0]["losses"], losses, strict=True)):
        assert abs(found - expected) <= loss_tolerance * abs(expected), f"step {step}: {found} is not {expected}"
    for name, wanted in parameters.items():
        first = results[0]["parameters"][name]
        error = (first.reshape(wanted.shape) - wanted).abs().max() / wanted.abs().max().clamp_min(1e-3)
        assert error <= parameter_tolerance, f"{name}: {error:.1e}"
        for rank, result in enumerate(results):
            assert torch.equal(result["parameters"][name], first), f"{name} on rank {rank}"
