"""Models that are more than a stack of layers train as they do in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import fsdp_odd_models
import pytest
import torch
from by_turns import by_turns
from fsdp_training import Recipe, blocks_of, check_training, plan_of, train_alone, train_sharded
from gloo_ranks import GlooRanks
from torch import Tensor, nn

WORLD_SIZE = 4
DEGREES = ((1, 1, 1, 4), (2, 2, 4, 4), (4, 4, 2, 4), (4, 2, 4, 4), (4, 1, 4, 4), (2, 2, 1, 2))
SGD = Recipe(torch.optim.SGD, ({"lr": 0.1, "momentum": 0.9},))
"""Which, other than AdamW, makes no steps of gradients that are zero but for rounding, as of the keys' biases."""
TURNING = replace(SGD, batch_of=fsdp_odd_models.turning_batch)
CHOOSING = replace(SGD, batch_of=fsdp_odd_models.choosing_batch)
IMAGES = replace(SGD, batch_of=fsdp_odd_models.images_of)
MODELS: dict[Callable[[], nn.Module], Recipe] = {
    fsdp_odd_models.Uneven: SGD,
    fsdp_odd_models.Frozen: SGD,
    fsdp_odd_models.Tied: SGD,
    fsdp_odd_models.TiedWithBias: SGD,
    fsdp_odd_models.Twice: SGD,
    fsdp_odd_models.Turning: TURNING,
    fsdp_odd_models.Choosing: CHOOSING,
    fsdp_odd_models.Unused: SGD,
    fsdp_odd_models.WithOdd: SGD,
    fsdp_odd_models.Borrowing: SGD,
    fsdp_odd_models.WithAttention: SGD,
    fsdp_odd_models.Convolving: IMAGES,
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(WORLD_SIZE) as started:
        yield started


@cache
def alone(make: Callable[[], nn.Module], num_micro_batches: int) -> tuple[list[float], dict[str, Tensor]]:
    return train_alone(make, num_micro_batches, MODELS[make], WORLD_SIZE)


def blocks(model: nn.Module) -> tuple[str, ...]:
    if isinstance(model, fsdp_odd_models.Convolving):
        return fsdp_odd_models.CONVOLVING_BLOCKS
    found = blocks_of(model)
    return found if all("." in name for name, _ in model.named_parameters()) else ("", *found)


def check(ranks: GlooRanks, make: Callable[[], nn.Module], plan: Any) -> None:
    found = ranks.run(train_sharded, make, plan, MODELS[make], timeout_s=60)
    check_training(found, *alone(make, plan.num_micro_batches))


def name_of(value: Any) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("make", "degrees"), by_turns(list(MODELS), DEGREES), ids=name_of)
def test_an_odd_model_trains_as_in_one_process(
    ranks: GlooRanks, make: Callable[[], nn.Module], degrees: tuple[int, int, int, int]
) -> None:
    # Every other case has two micro-batches.
    num_micro_batches = 1 + DEGREES.index(degrees) % 2
    check(ranks, make, plan_of(blocks(make()), degrees, num_micro_batches, world_size=WORLD_SIZE))
