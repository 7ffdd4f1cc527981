"""Quantized gathers and reductions on 8 real ranks, as two nodes of four and as four of two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from fsdp_training import Tiny, blocks_of, plan_of
from gloo_ranks import GlooRanks
from quantized_ranks import error_of_a_sum, reduce_constants, refused, trained

from costmodels.fsdp import FSDP
from costmodels.schedule import messages_of
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload
from planner.model_graph import ModelSource
from planner.trace import trace
from runtime.fsdp.quantized_reduction import hops
from runtime.fsdp.strategies import ShardingPlan
from runtime.record_traffic import RecordedTraffic

N = 8
Degrees = tuple[int, int, int, int]


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(N) as started:
        yield started


def quantized(
    degrees: Degrees, weights: bool, gradients: bool, *, node: int = 4, times: int = 1, precision: str = "fp32"
) -> ShardingPlan:
    """Returns a plan of one strategy (p, s, g, o)."""
    plan = plan_of(blocks_of(Tiny()), degrees, times, precision, N)
    strategy = replace(plan.strategies[0], quantized_weights=weights, quantized_gradients=gradients)
    return replace(plan, strategies=(strategy,), ranks_per_node=node)


def of_type(results: Sequence[RecordedTraffic], operation: str) -> dict[tuple[int, int], int]:
    return {(each.degree_from, each.degree_to): each.bytes for each in results if each.operation == operation}


@pytest.mark.parametrize("node", [4, pytest.param(2, marks=pytest.mark.slow)])
def test_messages_are_a_half_and_between_nodes_a_quarter_of_the_exact_ones(ranks: GlooRanks, node: int) -> None:
    degrees = (8, node, 8, 8)
    exact = ranks.run(trained, quantized(degrees, False, False, node=node, precision="bf16"), 0, 256)[0]["traffic"]
    lossy = ranks.run(trained, quantized(degrees, True, True, node=node, precision="bf16"), 0, 256)[0]["traffic"]
    plain, small = of_type(exact, "all_gather"), of_type(lossy, "all_gather")
    assert set(plain) == set(small) == {(1, node), (1, 8)}
    assert all(small[group] <= 0.51 * plain[group] for group in plain)
    (reduced_bytes,) = of_type(exact, "reduce_scatter").values()
    sent = of_type(lossy, "all_to_all")
    assert set(sent) == {(1, node), (node, 8)}
    # Between nodes goes what a reduce-scatter inside the node leaves: a part of one rank in `node`.
    assert sent[node, 8] <= 0.27 * reduced_bytes / node
    assert sent[1, node] <= 0.27 * reduced_bytes
    assert not of_type(lossy, "reduce_scatter")


def tiny(micro_batch_size: int) -> tuple[Tiny, dict[str, torch.Tensor]]:
    """What is traced."""
    return Tiny(), {"tokens": torch.zeros(micro_batch_size, 9, dtype=torch.long)}


@pytest.fixture(scope="module")
def workload() -> Workload:
    return trace(ModelSource(spec=f"{__file__}:tiny", kind="file"), precision="fp32", device="cpu").workload


def predicted(workload: Workload, plan: ShardingPlan) -> list[tuple[Any, ...]]:
    """Returns what the cost model says of the messages of a step."""
    shape = StepShape(N, 2, plan.num_micro_batches, plan.precision, "adamw", "cpu", plan.ranks_per_node)
    of_runtime = plan.strategies[0]
    strategy = Strategy(
        *of_runtime.degrees,
        quantized_weights=of_runtime.quantized_weights,
        quantized_gradients=of_runtime.quantized_gradients,
    )
    assignment = (strategy,) * workload.num_classes
    assert FSDP.refusal(workload, assignment, shape) is None
    total: Counter[tuple[Any, ...]] = Counter()
    count: Counter[tuple[Any, ...]] = Counter()
    for message in FSDP.traffic(workload, assignment, shape):
        key = (message.operation, message.degree_from, message.degree_to)
        total[key] += message.total_bytes
        count[key] += message.count
    in_order = messages_of(FSDP.schedule(workload, assignment, shape))
    assert sum(message.message_bytes * times for message, times in in_order) == total.total()
    return [(*key, total[key], count[key]) for key in sorted(count)]


CASES = [
    ((8, 4, 8, 8), True, True, 4, 3, "bf16"),
    ((8, 8, 1, 8), True, False, 4, 1, "fp32"),
    ((2, 2, 8, 8), False, True, 1, 1, "fp16"),
]
MORE_CASES = [
    ((8, 8, 8, 8), True, True, 4, 1, "fp32"),
    ((8, 2, 4, 8), True, True, 2, 3, "fp32"),
    ((4, 1, 4, 4), True, True, 4, 1, "fp32"),
    ((1, 1, 8, 8), False, True, 2, 3, "fp32"),
    ((8, 8, 2, 8), True, True, 4, 1, "bf16"),
    ((2, 2, 2, 2), True, True, 8, 3, "fp16"),
]


@pytest.mark.parametrize(
    ("degrees", "weights", "gradients", "node", "times", "precision"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_CASES)],
)
def test_replicas_are_equal_losses_near_the_exact_ones_and_bytes_as_predicted(
    ranks: GlooRanks,
    workload: Workload,
    degrees: Degrees,
    weights: bool,
    gradients: bool,
    node: int,
    times: int,
    precision: str,
) -> None:
    options = {"node": node, "times": times, "precision": precision}
    lossy = ranks.run(trained, quantized(degrees, weights, gradients, **options), 4, 16)
    exact = ranks.run(trained, quantized(degrees, False, False, **options), 4, 16)
    for result in lossy[1:]:
        assert result["losses"] == lossy[0]["losses"]
        assert all(torch.equal(result["parameters"][name], each) for name, each in lossy[0]["parameters"].items())
    assert lossy[0]["losses"] != exact[0]["losses"]
    for mine, theirs in zip(lossy[0]["losses"], exact[0]["losses"], strict=True):
        assert mine == pytest.approx(theirs, rel=0.02)
    recorded = [
        (each.operation, each.degree_from, each.degree_to, each.bytes, each.count) for each in lossy[0]["traffic"]
    ]
    assert recorded == predicted(workload, quantized(degrees, weights, gradients, **options))


PIECES = [
    (8, 8, 8, 4),
    (8, 8, 8, 2),
    (4, 8, 8, 4),
    (1, 4, 8, 2),
    (2, 2, 8, 4),
    (8, 4, 8, 1),
    (1, 8, 8, 8),
    (2, 4, 4, 4),
]
"""(p, g, o, ranks of a node)."""


@pytest.mark.parametrize("feedback", [False, True])
def test_each_rank_has_the_sums_of_its_own_piece(ranks: GlooRanks, feedback: bool) -> None:
    for degrees in PIECES:
        for mine, expected in ranks.run(reduce_constants, *degrees, feedback):
            assert torch.allclose(mine, expected, rtol=1e-5), degrees


def test_error_feedback_makes_up_for_what_was_left_out(ranks: GlooRanks) -> None:
    for node in (4, 2, 8):
        for without, with_feedback in ranks.run(error_of_a_sum, node):
            assert with_feedback < without / 4


def test_hops_end_at_the_node() -> None:
    assert hops(64, 8) == [(1, 8), (8, 64)]
    assert hops(8, 8) == hops(8, 16) == [(1, 8)]
    assert hops(12, 8) == [(1, 4), (4, 12)]
    assert hops(8, 1) == [(1, 8)]
    assert hops(1, 8) == []


@pytest.mark.parametrize(
    ("degrees", "weights", "gradients", "reason"),
    [((1, 1, 8, 8), True, False, "not gathered"), ((8, 8, 1, 8), False, True, "grad degree of 1")],
)
def test_what_is_not_sent_cannot_be_quantized(
    ranks: GlooRanks, degrees: Degrees, weights: bool, gradients: bool, reason: str
) -> None:
    for text in ranks.run(refused, quantized(degrees, weights, gradients)):
        assert reason in text
