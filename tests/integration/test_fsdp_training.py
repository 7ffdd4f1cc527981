"""Training under every nested (p, g, o) is training by one process: the same losses, the same parameters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from fsdp_training import ADAMW, Tiny, blocks_of, check_training, plan_of, train_alone, train_sharded
from gloo_ranks import GlooRanks
from torch import Tensor

WORLD_SIZE = 8
DEGREES = (1, 2, 4, 8)
ALL = tuple(
    (param, secondary, grad, optim)
    for param in DEGREES
    for secondary in DEGREES
    for grad in DEGREES
    for optim in DEGREES
    if param % secondary == 0 and optim % param == 0 and optim % grad == 0
)
"""Every (p, s, g, o) over levels of 2 x 2 x 2: s | p | o, g | o; also g < p."""
SOME = (
    (1, 1, 1, 1),
    (1, 1, 2, 8),
    (2, 2, 2, 4),
    (4, 2, 4, 8),
    (8, 4, 1, 8),
    (4, 1, 2, 4),
)
"""Of each kind of message one at least: all degrees differ, g < p, 1 < s < p, s = 1 < p, o < world."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(WORLD_SIZE) as started:
        yield started


@cache
def alone(num_micro_batches: int) -> tuple[list[float], dict[str, Tensor]]:
    return train_alone(Tiny, num_micro_batches, ADAMW, WORLD_SIZE)


def check(ranks: GlooRanks, degrees: tuple[int, int, int, int], num_micro_batches: int) -> None:
    plan = plan_of(blocks_of(Tiny()), degrees, num_micro_batches)
    check_training(ranks.run(train_sharded, Tiny, plan, ADAMW), *alone(num_micro_batches))


@pytest.mark.parametrize("num_micro_batches", [1, 3])
@pytest.mark.parametrize("degrees", SOME)
def test_a_strategy_of_each_kind_trains_as_one_process(
    ranks: GlooRanks, degrees: tuple[int, int, int, int], num_micro_batches: int
) -> None:
    check(ranks, degrees, num_micro_batches)


@pytest.mark.slow
@pytest.mark.parametrize("num_micro_batches", [1, 3])
@pytest.mark.parametrize("degrees", [each for each in ALL if each not in SOME])
def test_every_other_strategy_trains_as_one_process(
    ranks: GlooRanks, degrees: tuple[int, int, int, int], num_micro_batches: int
) -> None:
    check(ranks, degrees, num_micro_batches)
