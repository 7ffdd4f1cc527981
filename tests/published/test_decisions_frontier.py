"""The three-level partition beats ZeRO++, and that ZeRO-3, on Frontier; for a batch that the paper does not tell."""

from __future__ import annotations

import pytest
from decisions_frontier import NETWORK_EFFICIENCY, misfit, ratios, step_s

TOLERANCE = 0.15


def test_the_network_is_fitted() -> None:
    at = NETWORK_EFFICIENCY
    assert misfit(at) < min(misfit(at - 0.02), misfit(at + 0.02))


def test_both_ratios_are_within_15_per_cent_where_three_levels_quantize_too() -> None:
    zeropp, three_level, _ = ratios()
    for anchor in (zeropp, three_level):
        assert anchor.predicted == pytest.approx(anchor.published, rel=TOLERANCE)


def test_in_fp16_the_three_levels_are_missed_by_what_is_said() -> None:
    _, _, unquantized = ratios()
    assert unquantized.error == pytest.approx(-0.18, abs=0.015)


@pytest.mark.parametrize("efficiency", [0.2, NETWORK_EFFICIENCY, 0.75])
@pytest.mark.parametrize("num_micro_batches", [4, 16, 64])
def test_the_order_holds_whatever_the_network_reaches_and_the_batch_is(
    efficiency: float, num_micro_batches: int
) -> None:
    seconds = [
        step_s(system, efficiency, num_micro_batches)
        for system in ("three_level", "three_level_unquantized", "zeropp", "hpz", "zero3")
    ]
    assert seconds == sorted(seconds)


def test_a_step_of_one_micro_batch_does_not_tell_what_was_published() -> None:
    """Once in a step, (2, 8, N) sends what goes from node to node; so its gain of 2.4 needs many micro-batches."""
    zeropp, three_level, _ = ratios(num_micro_batches=1)
    assert zeropp.predicted > 1
    assert three_level.predicted < 0.6 * three_level.published
