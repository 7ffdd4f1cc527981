"""Precisions, optimizers, parameter groups, schedules, clipping and mixed strategies: as in one process."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from by_turns import by_turns, some
from fsdp_training import (
    ADAMW,
    Recipe,
    Tiny,
    blocks_of,
    check_training,
    mixed_plan,
    plan_of,
    tokens_of,
    train_alone,
    train_sharded,
)
from gloo_ranks import GlooRanks
from torch import Tensor

WORLD_SIZE = 4
DEGREES = ((1, 1, 1, 4), (2, 2, 4, 4), (4, 2, 2, 4))
MIXED = {
    ("embed",): (1, 1, 2, 4),
    ("layers.0",): (4, 4, 4, 4),
    ("layers.1",): (1, 1, 1, 1),
    ("layers.2",): (2, 2, 1, 4),
    ("norm",): (1, 1, 4, 4),
    ("head",): (4, 1, 2, 4),
}
"""A strategy of its own for each block: gathered ones stand beside whole ones, and all kinds of messages mix."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(WORLD_SIZE) as started:
        yield started


def is_matrix(name: str) -> int:
    return 0 if name.endswith("weight") and "norm" not in name else 1


def warming(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, [3e-3, 1e-3], total_steps=12)


def halving(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)


RECIPES = {
    "clipped": replace(ADAMW, max_norm=0.5),
    "two groups and a schedule": Recipe(
        groups=({"lr": 3e-3, "weight_decay": 0.1}, {"lr": 1e-3, "weight_decay": 0.0, "betas": (0.8, 0.9)}),
        group_of=is_matrix,
        scheduler=warming,
    ),
    "sgd": Recipe(torch.optim.SGD, ({"lr": 0.1, "momentum": 0.9, "nesterov": True},), scheduler=halving, max_norm=1.0),
    "adam": Recipe(torch.optim.Adam, ({"lr": 1e-3, "weight_decay": 0.01, "amsgrad": True},)),
    "rmsprop": Recipe(torch.optim.RMSprop, ({"lr": 1e-3},)),
}


@pytest.mark.parametrize(("recipe", "degrees"), by_turns(list(RECIPES), DEGREES), ids=str)
def test_a_recipe_trains_as_in_one_process(ranks: GlooRanks, recipe: str, degrees: tuple[int, int, int, int]) -> None:
    plan = plan_of(blocks_of(Tiny()), degrees, 1 + DEGREES.index(degrees) % 2, world_size=WORLD_SIZE)
    found = ranks.run(train_sharded, Tiny, plan, RECIPES[recipe])
    check_training(found, *train_alone(Tiny, plan.num_micro_batches, RECIPES[recipe], WORLD_SIZE))


@pytest.mark.parametrize("prefetch", some([0, 1, 3], 1))
def test_each_block_may_have_a_strategy_of_its_own(ranks: GlooRanks, prefetch: int) -> None:
    plan = mixed_plan(MIXED, 2, world_size=WORLD_SIZE, prefetch=prefetch)
    check_training(ranks.run(train_sharded, Tiny, plan), *train_alone(Tiny, 2, ADAMW, WORLD_SIZE))


@pytest.mark.parametrize("degrees", some(DEGREES, DEGREES[2]))
def test_recomputed_blocks_train_as_others(ranks: GlooRanks, degrees: tuple[int, int, int, int]) -> None:
    plan = plan_of(blocks_of(Tiny()), degrees, 2, world_size=WORLD_SIZE)
    plan = replace(plan, recompute_modules=("layers.0", "layers.2"))
    check_training(ranks.run(train_sharded, Tiny, plan), *train_alone(Tiny, 2, ADAMW, WORLD_SIZE))


def same_tokens(_: int, micro_batch: int, rank: int) -> Tensor:
    return tokens_of(0, micro_batch, rank)


@pytest.mark.parametrize(("precision", "degrees"), by_turns(["fp16", "bf16"], DEGREES[1:]), ids=str)
def test_half_precisions_train_near_fp32(ranks: GlooRanks, precision: str, degrees: tuple[int, int, int, int]) -> None:
    learning = Recipe(groups=({"lr": 1e-2},), batch_of=same_tokens)
    plan = plan_of(blocks_of(Tiny()), degrees, 2, precision, WORLD_SIZE)
    found = ranks.run(train_sharded, Tiny, plan, learning)
    losses, parameters = train_alone(Tiny, 2, learning, WORLD_SIZE)
    # AdamW turns what half precision makes of a tiny gradient into a step of full size: parameters are not compared.
    check_training(found, losses, parameters, loss_tolerance=2e-2, parameter_tolerance=math.inf)
    assert found[0]["losses"][-1] < 0.9 * found[0]["losses"][0]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    assert {each.dtype for each in found[0]["parameters"].values()} == {dtype}
