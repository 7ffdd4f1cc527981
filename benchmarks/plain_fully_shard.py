"""PyTorch's `fully_shard` as people use it by themselves, in the place of the runtime's engine.

Each block is sharded over the first degree of its strategy and replicated over the rest; all else is what PyTorch does
unless it is asked: gradients are reduced after every micro-batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from runtime.fsdp.strategies import ShardingPlan
from runtime.fsdp.training_config import TrainingConfig
from runtime.weights import Build, whole_model


class PlainEngine:
    """A model under `fully_shard` and its optimizer, called as the runtime's engine is."""

    def __init__(self, model: nn.Module, num_micro_batches: int) -> None:
        """Takes a sharded model."""
        self._model = model
        self._num_micro_batches = num_micro_batches
        self._num_done = 0
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)

    def __call__(self, **arguments: Any) -> Any:
        """Runs the forward of one micro-batch."""
        return self._model(**arguments)

    def backward(self, loss: torch.Tensor) -> None:
        """Runs the backward of one micro-batch."""
        (loss / self._num_micro_batches).backward()  # type: ignore[no-untyped-call]

    def step(self) -> None:
        """Updates the parameters, if this micro-batch was the last of its optimizer step."""
        self._num_done += 1
        if self._num_done % self._num_micro_batches == 0:
            self._optimizer.step()
            self._optimizer.zero_grad()


def plain_engine(
    plan: ShardingPlan,
    training: TrainingConfig,
    device: torch.device,
    build: Build,
    seed: int,
    reference: list[nn.Module | None],
) -> PlainEngine:
    """Returns the engine around a model that `fully_shard` shards; takes what the runtime's engine does."""
    reference.clear()
    model = whole_model(build, seed)
    degree = plan.strategies[0].param_degree
    shape = (plan.world_size // degree, degree)
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))
    if shape[0] == 1:
        mesh = mesh["shard"]
    blocks = [block for strategy in plan.strategies for block in strategy.blocks if block]
    for block in sorted(blocks, key=lambda path: -path.count(".")):
        fully_shard(model.get_submodule(block), mesh=mesh)
    fully_shard(model, mesh=mesh)
    return PlainEngine(model, training.num_micro_batches)
