"""Optimizer states over all ranks cost nothing at 8 GPUs and a quarter at 512, as InternEvo published."""

from __future__ import annotations

import pytest
from decisions_internevo import GPUS, NODE, crossover, curves, tokens_per_s

TOLERANCE = 0.15
WITHIN = [each for each in curves() if each.figure != "(1,1,N) at 1024 GPUs"]


@pytest.mark.parametrize("anchor", WITHIN, ids=lambda anchor: anchor.figure)
def test_both_curves_of_throughput(anchor) -> None:
    assert anchor.predicted == pytest.approx(anchor.published, rel=TOLERANCE)


def test_states_over_all_ranks_are_equal_on_one_node_and_clearly_slower_on_64() -> None:
    over = dict(zip(GPUS, crossover(), strict=True))
    assert over[8].predicted == pytest.approx(over[8].published, rel=0.01)
    assert over[512].predicted < 0.85
    assert over[512].predicted == pytest.approx(over[512].published, rel=TOLERANCE)


def test_over_all_ranks_falls_behind_further_with_each_doubling_from_64_on() -> None:
    found = [each.predicted for each, num_ranks in zip(crossover(), GPUS, strict=True) if num_ranks >= 64]
    assert found == sorted(found, reverse=True)


def test_the_point_that_is_missed_is_missed_by_what_is_said() -> None:
    (missed,) = (each for each in curves() if each not in WITHIN)
    assert missed.error == pytest.approx(-0.17, abs=0.01)


def test_the_gap_is_of_one_broadcast_for_each_shard_and_not_of_the_degree() -> None:
    """Gathered block by block beside the next forward, states over 512 ranks cost less than 1 % more."""
    over, inside = (tokens_per_s(512, degree, broadcasts=False) for degree in (512, NODE))
    assert over == pytest.approx(inside, rel=0.01)
