"""Models of transformers train as in one process, by the blocks that the planner finds in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fsdp_training import Recipe, check_training, mixed_plan, train_alone, train_sharded
from gloo_ranks import GlooRanks
from torch import Tensor, nn

from planner.model_graph import ModelSource
from planner.trace import trace
from runtime.data import samples_like
from runtime.fsdp.strategies import ShardingPlan

WORLD_SIZE = 4
ZOO = Path(__file__).parents[1] / "zoo"
MODELS = {
    "gpt2": "decoders",
    "llama": "decoders",
    "mixtral": "mixtures",
    "t5": "translators",
    "bert": "encoders",
    "albert": "encoders",
}
"""With tied embeddings, with plain ones, of stacked experts, with an embedding that three modules share, with a bias
beside a tied weight, and with one layer that is called again and again."""
Degrees = tuple[int, int, int, int]
STRATEGIES: tuple[tuple[Degrees, ...], ...] = (
    ((4, 4, 4, 4),),
    ((2, 2, 1, 4), (1, 1, 2, 4), (4, 2, 4, 4)),
    ((1, 1, 4, 4), (4, 1, 2, 4)),
)
"""By turns, one for each class of blocks."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(WORLD_SIZE) as started:
        yield started


def entry(name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(f"tests.zoo.{MODELS[name]}"), name)


def make(name: str) -> nn.Module:
    # Without dropout, which differs by rank.
    model: nn.Module = entry(name)(2)[0]
    return model.eval()


def batch_of(name: str, step: int, micro_batch: int, rank: int) -> dict[str, Any]:
    _, batch = entry(name)(2)
    first = 100 * step + 10 * micro_batch + 2 * rank
    return samples_like(batch, 2, seed=0).batch((first, first + 1))


def loss_of(model: nn.Module, batch: dict[str, Any]) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


@cache
def recipe(name: str) -> Recipe:
    return Recipe(
        torch.optim.SGD,
        ({"lr": 0.02, "momentum": 0.9},),
        num_steps=4,
        batch_of=partial(batch_of, name),
        loss_of=loss_of,
    )


@cache
def alone(name: str) -> tuple[list[float], dict[str, Tensor]]:
    return train_alone(partial(make, name), 2, recipe(name), WORLD_SIZE)


@cache
def blocks(name: str) -> dict[str, int]:
    """Returns the class of each block that has parameters."""
    source = ModelSource(spec=f"{ZOO / MODELS[name]}.py:{name}", kind="file", arguments={})
    workload = trace(source, precision="fp32", device="cpu").workload
    return {block.name: block.block_class for block in workload.blocks if block.parameters}


def plan_of(name: str, strategies: tuple[Degrees, ...]) -> ShardingPlan:
    degrees = {(block,): strategies[number % len(strategies)] for block, number in blocks(name).items()}
    return mixed_plan(degrees, 2, world_size=WORLD_SIZE)


@pytest.mark.parametrize(
    ("name", "strategies"),
    [
        pytest.param(
            name, strategies, marks=() if (name, number) in (("gpt2", 1), ("mixtral", 2)) else pytest.mark.slow
        )
        for name in MODELS
        for number, strategies in enumerate(STRATEGIES)
    ],
    ids=str,
)
def test_a_model_of_transformers_trains_as_in_one_process(
    ranks: GlooRanks, name: str, strategies: tuple[Degrees, ...]
) -> None:
    found = ranks.run(train_sharded, partial(make, name), plan_of(name, strategies), recipe(name))
    check_training(found, *alone(name))
