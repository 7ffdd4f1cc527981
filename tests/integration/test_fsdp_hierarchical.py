"""Collectives that go level by level give what they give at once, and each level carries its part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from fsdp_cases import Case, record_traffic, totals_of
from fsdp_training import Tiny, blocks_of, mixed_plan, train_sharded
from gloo_ranks import GlooRanks
from hierarchical_ranks import ELEMENTS, sent

from costmodels.degrees import strategies
from costmodels.fsdp import FSDP
from runtime.fsdp.groups import stops_between

LEVELS = [(2, 2, 2), (4, 2), (2, 4)]
SPANS = [(1, 8), (1, 4), (2, 8), (1, 2), (4, 8)]


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(8) as started:
        yield started


def test_a_message_stops_where_levels_end() -> None:
    assert stops_between(1, 8, (2, 2, 2)) == (1, 2, 4, 8)
    assert stops_between(2, 8, (4, 2)) == (2, 4, 8)
    assert stops_between(1, 4, (8, 2)) == (1, 4)
    assert stops_between(1, 8, ()) == (1, 8)
    assert stops_between(16, 512, (8, 64)) == (16, 512)
    assert stops_between(4, 16, (8, 2)) == (4, 8, 16)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "all_reduce"])
def test_level_by_level_gives_what_the_whole_gives(ranks: GlooRanks, operation: str, in_place: bool) -> None:
    for level_sizes in LEVELS:
        for inner, outer in SPANS:
            for dtype in (torch.float32, torch.bfloat16):
                asked = (operation, inner, outer, level_sizes, dtype)
                for staged, whole, _ in ranks.run(sent, *asked, in_place, timeout_s=60):
                    assert torch.equal(staged, whole), asked


def test_each_level_carries_its_part_of_the_message(ranks: GlooRanks) -> None:
    shard_bytes = 4 * ELEMENTS
    for operation in ("all_gather", "reduce_scatter"):
        for _, _, traffic in ranks.run(sent, operation, 1, 8, (2, 2, 2), torch.float32, False):
            carried = {(each.degree_from, each.degree_to): each.bytes for each in traffic}
            assert carried == {(1, 2): 8 * shard_bytes, (2, 4): 4 * shard_bytes, (4, 8): 2 * shard_bytes}
            assert all(each.operation == operation and each.count == 1 for each in traffic)
    for _, _, traffic in ranks.run(sent, "all_reduce", 1, 8, (2, 4), torch.float32, False):
        assert [(each.operation, each.degree_from, each.degree_to, each.bytes) for each in traffic] == [
            ("all_gather", 1, 2, 8 * shard_bytes),
            ("all_reduce", 2, 8, 4 * shard_bytes),
            ("reduce_scatter", 1, 2, 8 * shard_bytes),
        ]


@pytest.mark.parametrize("degrees", [(8, 4, 8, 8), (2, 2, 2, 8), (1, 1, 8, 8), (1, 1, 1, 1)])
def test_training_level_by_level_is_training_at_once(ranks: GlooRanks, degrees: tuple[int, int, int, int]) -> None:
    plan = mixed_plan({blocks_of(Tiny()): degrees}, num_micro_batches=2)
    staged = replace(plan, strategies=(replace(plan.strategies[0], hierarchical=True),), prefetch=2)
    at_once = ranks.run(train_sharded, Tiny, plan, timeout_s=60)[0]
    results = ranks.run(train_sharded, Tiny, staged, timeout_s=60)
    assert results[0]["losses"] == pytest.approx(at_once["losses"], rel=1e-5)
    for name, values in results[0]["parameters"].items():
        assert all(torch.equal(values, other["parameters"][name]) for other in results)


@pytest.mark.parametrize("num_micro_batches", [1, 2])
def test_what_each_level_carries_is_what_the_model_says(ranks: GlooRanks, num_micro_batches: int) -> None:
    cases = [Case("uneven", (each,), num_micro_batches) for each in strategies((2, 2, 2))[::5]]
    plans = [case.plan() for case in cases]
    plans = [
        replace(plan, strategies=tuple(replace(each, hierarchical=True) for each in plan.strategies)) for plan in plans
    ]
    for recorded in ranks.run(record_traffic, list(zip(cases, plans, strict=True))):
        for case, found in zip(cases, recorded, strict=True):
            staged = tuple(replace(each, hierarchical=True) for each in case.assignment)
            shape = replace(case.shape, level_sizes=(2, 2, 2))
            assert found == totals_of(FSDP.traffic(case.workload, staged, shape)), case
