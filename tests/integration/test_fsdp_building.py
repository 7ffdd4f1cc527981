"""Models made without memory get it block by block: a rank never has more than its shards and one whole block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import fsdp_building
import pytest
import torch
from fsdp_training import ADAMW, Tiny, train_alone
from gloo_ranks import GlooRanks

WORLD_SIZE = 4
Degrees = tuple[int, int, int, int]


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(WORLD_SIZE) as started:
        yield started


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("degrees", [(4, 4, 4, 4), (2, 2, 4, 4)], ids=str)
def test_building_takes_the_shards_and_one_whole_block(ranks: GlooRanks, degrees: Degrees, precision: str) -> None:
    width = 4 if precision == "fp32" else 2
    for use, num_params, largest in ranks.run(fsdp_building.build_without_memory, degrees, precision):
        shards = width * (num_params // degrees[0] + num_params // degrees[2])
        # Values are made in fp32; beside them is what a parameter is brought to, and the copy that its shard becomes.
        block = 4 * largest + width * largest
        assert use.init_peak_bytes <= shards + 1.02 * block
        assert use.init_peak_bytes < 0.8 * 4 * num_params + shards


@pytest.mark.parametrize("degrees", [(1, 1, 2, 4), (4, 2, 4, 4)], ids=str)
def test_a_model_from_meta_trains_as_one_with_memory(ranks: GlooRanks, degrees: Degrees) -> None:
    found = ranks.run(fsdp_building.train_from_meta, degrees, True)
    _, parameters = train_alone(Tiny, 1, replace(ADAMW, num_steps=3), WORLD_SIZE)
    for result in found:
        for name, value in parameters.items():
            assert torch.allclose(result[name], value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("degrees", [(1, 1, 2, 4), (4, 2, 4, 4)], ids=str)
def test_modules_initialize_what_has_no_memory_alike_on_all_ranks(ranks: GlooRanks, degrees: Degrees) -> None:
    found = ranks.run(fsdp_building.train_from_meta, degrees, False)
    for result in found:
        assert all(torch.equal(value, result[name]) for name, value in found[0].items())
        assert all(value.isfinite().all() for value in result.values())


def test_what_cannot_be_initialized_is_refused_with_what_to_do(ranks: GlooRanks) -> None:
    for values, buffers in ranks.run(fsdp_building.refusals):
        assert "give shard() a `fill`" in values
        assert "parameters_without_memory()" in buffers
