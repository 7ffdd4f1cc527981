"""Bytes of quantized collectives by hand, and what they save."""

from __future__ import annotations

import pytest

from costmodels.network import DeviceSpeed, Network, NetworkCurve, NetworkLevel
from costmodels.quantized import QUANTIZED_BYTES, quantized_gather, quantized_reduce, quantized_time, weight_blocks

NETWORK = Network(levels=(NetworkLevel(8, 300e9, 0.0), NetworkLevel(4, 100e9, 0.0)))
NO_WORK = DeviceSpeed(1e15, 1e30, 0.0, 1.0)


@pytest.mark.parametrize(
    ("num_elements", "blocks"),
    # 4096 x 4096 / 32 ranks: 66 blocks of 8000 would be too few; the least number that divides by 8 blocks, doubled
    # while its blocks are larger than 8000.
    [(4096 * 4096 // 32, 128), (8000, 1), (8, 1), (64_000, 8), (7, None), (8 * 15_013, 15_013)],
)
def test_a_shard_has_the_blocks_that_deepspeed_gives_it(num_elements: int, blocks: int | None) -> None:
    assert weight_blocks(num_elements) == blocks


def test_int8_parameters_are_half_the_bytes_and_a_scale_for_each_block() -> None:
    message = quantized_gather(4096 * 4096, 32)
    assert message is not None
    assert (message.element_bytes, message.scale_bytes) == (4096 * 4096, 32 * 128 * 4)
    assert message.message_bytes == QUANTIZED_BYTES(4096 * 4096, 32 * 128, 8)
    assert message.message_bytes / (2 * 4096 * 4096) == pytest.approx(0.5005, abs=1e-4)


def test_a_shard_that_no_blocks_divide_is_not_quantized() -> None:
    assert quantized_gather(24 * 7, 24) is None


def test_int4_gradients_take_two_hops_and_a_quarter_of_the_bytes_across_nodes() -> None:
    hops = quantized_reduce((4096, 4096), 8, 32)
    assert hops is not None
    inside, between = hops
    num_elements = 4096 * 4096
    assert (inside.degree_from, inside.degree_to, between.degree_from, between.degree_to) == (1, 8, 8, 32)
    assert (inside.element_bytes, inside.scale_bytes) == (num_elements // 2, 4096 * 4)
    assert (between.element_bytes, between.scale_bytes) == (num_elements // 16, 512 * 4)
    # All 8 ranks of a node send their eighth: of 2 bytes per element, a quarter and the scales.
    assert 8 * between.message_bytes / (2 * num_elements) == pytest.approx(0.2505, abs=1e-4)


@pytest.mark.parametrize(
    ("shape", "ranks_per_node", "world_size"), [((4096,), 8, 32), ((3, 5), 8, 32), ((64, 64), 8, 8)]
)
def test_where_deepspeed_falls_back_there_is_no_quantized_reduction(
    shape: tuple[int, ...], ranks_per_node: int, world_size: int
) -> None:
    assert quantized_reduce(shape, ranks_per_node, world_size) is None


def test_a_quantized_gather_takes_its_bytes_over_the_links_and_the_conversion_at_memory_speed() -> None:
    message = quantized_gather(4096 * 4096, 32)
    assert message is not None
    on_links = quantized_time((message,), NETWORK, NO_WORK)
    assert on_links.provenance == "modelled"
    assert on_links.seconds == pytest.approx(message.message_bytes * 3 / 4 / 100e9)
    working = quantized_time((message,), NETWORK, DeviceSpeed(1e15, 1e12, 0.0, 1.0))
    # 2 bytes read and 1 written for an element of the shard, 1 read and 2 written for each that arrives.
    assert working.seconds - on_links.seconds == pytest.approx(3 * (1 + 1 / 32) * 4096 * 4096 / 1e12)


def test_a_time_is_as_certain_as_its_least_certain_message() -> None:
    message = quantized_gather(8 * 8000, 8)
    assert message is not None
    curve = NetworkCurve("all_gather", 1, 8, ((message.element_bytes, 1e-3), (2 * message.element_bytes, 2e-3)))
    time = quantized_time((message,), Network(NETWORK.levels, (curve,)), NO_WORK)
    # The scales are a smaller message than was measured, and this network has no start-ups.
    assert time.provenance == "modelled"
    assert time.seconds == pytest.approx(1e-3 * message.message_bytes / message.element_bytes)
