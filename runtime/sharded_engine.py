"""The fsdp engine with the interface of DeepSpeed's: call it, `backward`, `step` after each micro-batch."""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch import nn

from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import Sharded, shard
from runtime.fsdp.strategies import ShardingPlan
from runtime.fsdp.training_config import TrainingConfig
from runtime.ranks import LaunchError
from runtime.weights import Build, deal_buffers, dealer, model_without_memory


class ShardedEngine:
    """A sharded model and its optimizer."""

    def __init__(self, sharded: Sharded, optimizer: ShardedOptimizer) -> None:
        """Joins them; no micro-batch has run."""
        self.sharded = sharded
        self.optimizer = optimizer
        self._num_micro_batches = 0

    def __call__(self, **arguments: Any) -> Any:
        """Runs the forward of one micro-batch."""
        return self.sharded.model(**arguments)

    def backward(self, loss: torch.Tensor) -> None:
        """Runs the backward of one micro-batch."""
        self.optimizer.backward(loss)

    def step(self) -> None:
        """Updates the parameters, if this micro-batch was the last of its optimizer step."""
        self._num_micro_batches += 1
        if self._num_micro_batches == self.optimizer.num_micro_batches:
            self._num_micro_batches = 0
            self.optimizer.step()


def sharded_engine(
    plan: ShardingPlan,
    training: TrainingConfig,
    device: torch.device,
    build: Build,
    seed: int,
    reference: list[nn.Module | None],
) -> ShardedEngine:
    """Returns the engine around a model with the weights and buffers of the first rank's.

    Args:
        plan: What is sharded.
        training: The optimizer, and how a step is made.
        device: Where to train.
        build: Makes the model.
        seed: Of the run.
        reference: One item: on the first rank the whole model, on others None; taken out, so that its memory is free
            afterwards.

    Raises:
        LaunchError: The plan is of another model, or the optimizer cannot be.
    """
    whole = reference.pop()
    model = model_without_memory(build, seed)
    deal_buffers(model, whole, device)
    sharded = shard(model, plan, device=device, fill=dealer(whole))
    del whole
    gc.collect()
    return ShardedEngine(sharded, _optimizer(sharded, training))


def _optimizer(sharded: Sharded, training: TrainingConfig) -> ShardedOptimizer:
    make = getattr(torch.optim, training.optimizer, None)
    if not (isinstance(make, type) and issubclass(make, torch.optim.Optimizer)):
        raise LaunchError(
            f"ds_config.json asks for the optimizer {training.optimizer}, and torch.optim has none of that name; write "
            "AdamW, Adam or SGD"
        )
    try:
        optimizer = ShardedOptimizer(sharded, make, max_norm=training.max_norm, **training.optimizer_options)
    except (TypeError, ValueError) as error:
        raise LaunchError(f"ds_config.json has options that {training.optimizer} does not take: {error}") from error
    optimizer.loss_scale = training.loss_scale()
    return optimizer
