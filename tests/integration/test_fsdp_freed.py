"""A sharded model that nobody holds any more takes no memory: the next one in the process has all of it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from fsdp_training import Tiny, blocks_of, plan_of, tokens_of
from gloo_ranks import GlooRanks

from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard


def train_and_drop(degrees: tuple[int, int, int, int]) -> list[bool]:
    """Whether model, sharding and optimizer are gone after a step."""
    model = Tiny()
    sharded = shard(model, plan_of(blocks_of(model), degrees, 1, "fp32", 2))
    optimizer = ShardedOptimizer(sharded, torch.optim.AdamW)
    optimizer.backward(model(tokens_of(0, 0, 0)))
    optimizer.step()
    sharded.synchronize()
    held = [weakref.ref(each) for each in (model, sharded, optimizer)]
    del model, sharded, optimizer
    gc.collect()
    return [each() is None for each in held]


@pytest.fixture(scope="module")
def ranks():
    with GlooRanks(2) as started:
        yield started


@pytest.mark.parametrize("degrees", [(1, 1, 1, 2), (1, 1, 2, 2), (2, 1, 1, 2), (2, 2, 2, 2)])
def test_what_is_dropped_is_freed(ranks, degrees):
    assert ranks.run(train_and_drop, degrees) == [[True] * 3] * 2
