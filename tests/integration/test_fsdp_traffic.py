"""What the fsdp engine's cost model says of traffic is what 8 ranks send, byte for byte and message for message."""

from __future__ import annotations

import random

import pytest
from fsdp_cases import RANKS, Case, record_traffic, totals_of
from gloo_ranks import GlooRanks

from costmodels.degrees import strategies
from costmodels.strategy import Strategy

EVERY = strategies((2, 2, 2))
"""All (p, s, g, o) on three levels of two, g < p included."""


@pytest.fixture(scope="module")
def ranks():
    with GlooRanks(RANKS) as started:
        yield started


def check(ranks: GlooRanks, cases: list[Case]) -> None:
    recorded = ranks.run(record_traffic, [(case, case.plan()) for case in cases])
    wrong = []
    for number, case in enumerate(cases):
        said = totals_of(case.messages())
        differing = [rank for rank in range(RANKS) if recorded[rank][number] != said]
        if differing:
            sent = recorded[differing[0]][number]
            wrong.append(f"{case}: ranks {differing} sent\n{sent}, and the model says\n{said}")
    assert not wrong, f"{len(wrong)} of {len(cases)}\n" + "\n".join(wrong[:4])


@pytest.mark.parametrize("num_micro_batches", [1, 3])
def test_every_nested_strategy_sends_what_the_model_says(ranks, num_micro_batches):
    check(ranks, [Case("uneven", (each,), num_micro_batches) for each in EVERY])


@pytest.mark.parametrize("model", ["tied", "frozen", "unused"])
def test_tied_frozen_and_unused_parameters_are_counted_as_they_are_sent(ranks, model):
    check(ranks, [Case(model, (each,), 2) for each in EVERY[::4]])


@pytest.mark.parametrize("model", ["uneven", "tied", "frozen", "unused"])
def test_classes_of_blocks_send_by_their_own_degrees(ranks, model):
    chosen = random.Random(model)
    check(ranks, [Case(model, tuple(chosen.choices(EVERY, k=4)), 2) for _ in range(8)])


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_sends_half_the_bytes_and_fp16_the_norm(ranks, precision):
    chosen = [Strategy(1, 1, 1, 8), Strategy(2, 2, 4, 8), Strategy(8, 8, 8, 8), Strategy(4, 1, 1, 4)]
    check(ranks, [Case("uneven", (each,), 2, precision) for each in chosen])
