"""What the fsdp engine's cost model says of memory is what ranks take: at rest, in the step, and while it is built."""

from __future__ import annotations

import pytest
from fsdp_cases import Case, fullest, record_memory
from gloo_ranks import GlooRanks

from costmodels.fsdp import FSDP
from costmodels.memory import StepMemory, step_memory
from costmodels.strategy import Strategy

RANKS = 4
AT_REST = 0.01
PEAK_LEAST, PEAK_MOST = 0.98, 1.05
"""Predicted over measured."""
BUILDING = 0.05

LARGE = (("width", "1024"), ("num_layers", "8"), ("vocabulary", "32768"), ("length", "64"))
"""117 million parameters."""


@pytest.fixture(scope="module")
def ranks():
    with GlooRanks(RANKS) as started:
        yield started


def case(strategy: Strategy, num_micro_batches: int = 1, precision="fp32", arguments=()) -> Case:
    return Case("gpt", (strategy,), num_micro_batches, precision, arguments, RANKS)


def predicted(each: Case) -> StepMemory:
    held = FSDP.memory(each.workload, each.assignment, each.shape)
    return step_memory(each.workload, held, each.assignment, each.shape)


def check(ranks: GlooRanks, cases: list[Case]) -> None:
    recorded = ranks.run(record_memory, [(each, each.plan()) for each in cases], timeout_s=1800)
    wrong = []
    for number, each in enumerate(cases):
        said = predicted(each)
        peak_bytes, rest_bytes, init_bytes = fullest([rank[number] for rank in recorded])
        holds = (
            abs(said.at_rest_bytes / rest_bytes - 1) <= AT_REST
            and PEAK_LEAST <= said.peak_bytes / peak_bytes <= PEAK_MOST
            and abs(said.init_peak_bytes / init_bytes - 1) <= BUILDING
        )
        line = (
            f"{each.strategies[0].degrees}, {each.num_micro_batches} micro-batches, {each.precision}: at rest "
            f"{said.at_rest_bytes} said, {rest_bytes} measured; peak {said.peak_bytes} said ({said.peak_phase}), "
            f"{peak_bytes} measured; building {said.init_peak_bytes} said, {init_bytes} measured"
        )
        if not holds:
            wrong.append(line)
    assert not wrong, "\n".join(wrong)


def test_predicted_memory_is_what_the_ranks_take(ranks):
    check(
        ranks,
        [
            case(Strategy(4, 4, 4, 4)),
            case(Strategy(1, 1, 1, 4), 2),
            case(Strategy(4, 1, 4, 4)),
            case(Strategy(2, 2, 2, 4), 2),
            case(Strategy(1, 1, 4, 4), precision="bf16"),
            case(Strategy(4, 4, 1, 4)),
        ],
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_micro_batches", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_predicted_memory_of_a_hundred_million_parameters_is_what_the_ranks_take(ranks, num_micro_batches, precision):
    chosen = [(1, 1, 1, 1), (1, 1, 1, 4), (1, 1, 4, 4), (4, 4, 4, 4), (4, 1, 4, 4), (4, 2, 4, 4), (2, 2, 2, 2)]
    chosen += [(2, 2, 4, 4), (4, 4, 1, 4), (2, 2, 2, 4), (1, 1, 2, 4)]
    check(ranks, [case(Strategy(*degrees), num_micro_batches, precision, LARGE) for degrees in chosen])
