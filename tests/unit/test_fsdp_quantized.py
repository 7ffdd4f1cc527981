"""The cost model of quantized messages against bytes counted by hand, and against the runtime's own layout."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_workload import one_block

from costmodels.engine import Message
from costmodels.fsdp import FSDP
from costmodels.fsdp.quantized import hops, run_bytes
from costmodels.strategy import StepShape, Strategy
from runtime.fsdp import quantized_layout, quantized_reduction

P = 25_600
"""100 blocks of 256, which 32 ranks have 800 elements each of: 4 scales."""
SHAPE = StepShape(world_size=32, micro_batch_size=1, num_micro_batches=3, ranks_per_node=8)
INT8 = 32 * (4 * 4 + 800)
INT4 = 32 * (4 * 4 + 400)


def sent(strategy: Strategy, shape: StepShape = SHAPE) -> list[Message]:
    """Returns the messages without what is converted for them."""
    assert FSDP.refusal(one_block(P), (strategy,), shape) is None
    return [replace(each, converted_bytes=0) for each in FSDP.traffic(one_block(P), (strategy,), shape)]


def test_gathers_are_of_bytes_with_a_scale_for_each_256_of_a_shard() -> None:
    assert sent(Strategy(32, 32, 32, 32, quantized_weights=True)) == [
        Message("all_gather", 1, 32, INT8, 3, "forward"),
        Message("all_gather", 1, 32, INT8, 3, "backward"),
        Message("reduce_scatter", 1, 32, 2 * P, 3, "backward"),
    ]


def test_a_gather_over_fewer_ranks_in_backward_has_the_scales_of_its_larger_shards() -> None:
    gather = sent(Strategy(32, 8, 32, 32, quantized_weights=True))[1]
    assert gather == Message("all_gather", 1, 8, 8 * (4 * 13 + 3200), 3, "backward")


def test_reductions_are_two_hops_of_half_bytes_the_second_of_what_is_summed_in_a_node() -> None:
    assert sent(Strategy(32, 1, 32, 32, quantized_gradients=True)) == [
        Message("all_gather", 1, 32, 2 * P, 3, "forward"),
        Message("all_to_all", 1, 8, INT4, 3, "backward"),
        Message("all_to_all", 8, 32, INT4 // 8, 3, "backward"),
    ]


def test_within_a_node_there_is_one_hop_and_the_boundary_and_the_spread_are_exact() -> None:
    lossy = sent(Strategy(4, 4, 8, 16, quantized_weights=True, quantized_gradients=True))
    exact = sent(Strategy(4, 4, 8, 16))
    # 16 slices of 1600 elements, 7 scales each.
    assert [each for each in lossy if each.operation == "all_to_all"] == [
        Message("all_to_all", 1, 8, 16 * (4 * 7 + 800), 3, "backward")
    ]
    once = ("boundary", "update")
    assert [each for each in lossy if each.cause in once] == [each for each in exact if each.cause in once]


def test_quantizing_costs_the_bytes_that_its_kernels_read_and_write() -> None:
    strategy = Strategy(32, 32, 32, 32, quantized_weights=True, quantized_gradients=True)
    gather, _, inside, between = FSDP.traffic(one_block(P), (strategy,), SHAPE)
    # Each rank quantizes its 800 elements and dequantizes all of them.
    assert gather.converted_bytes == 800 * (2 + 29) + P * (1 + 3 * 2)
    # It quantizes and sums all that it has: every element, then those that its node's part leaves.
    assert inside.converted_bytes == P * (2 + 87 + 22) + P // 8 * 2
    assert between.converted_bytes == P // 8 * (2 + 87 + 22) + P // 32 * 2
    exact = FSDP.traffic(one_block(P), (Strategy(32, 32, 32, 32),), SHAPE)
    assert not any(each.converted_bytes for each in exact)


@pytest.mark.parametrize(
    ("strategy", "shape", "reason"),
    [
        (Strategy(1, 1, 32, 32, quantized_weights=True), SHAPE, "not gathered"),
        (Strategy(32, 32, 1, 32, quantized_gradients=True), SHAPE, "at the boundary, which is exact"),
        (
            Strategy(32, 32, 32, 32, quantized_gradients=True),
            replace(SHAPE, ranks_per_node=None),
            "where a node's ranks end is not known",
        ),
    ],
)
def test_what_is_not_sent_is_refused_with_the_reason(strategy: Strategy, shape: StepShape, reason: str) -> None:
    assert reason in (FSDP.refusal(one_block(P), (strategy,), shape) or "")


@pytest.mark.parametrize("bits", [4, 8])
def test_the_model_lays_numbers_out_as_the_runtime_does(bits) -> None:
    for num_elements in (0, 1, 2, 3, 255, 256, 257, 511, 512, 100_001):
        assert run_bytes(num_elements, bits) == quantized_layout.run_bytes(num_elements, bits)


def test_the_model_has_the_hops_of_the_runtime() -> None:
    for grad_degree in (1, 2, 4, 8, 12, 64):
        for ranks_per_node in (1, 2, 4, 8, 16):
            assert list(hops(grad_degree, ranks_per_node)) == quantized_reduction.hops(grad_degree, ranks_per_node)
