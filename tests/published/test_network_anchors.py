"""Published times of two clusters' networks come out of a shipped machine and the collective model.

What is fitted: nothing for the ZeRO++ tutorial (the efficiency of a 100 Gb/s port is from nccl-tests on another
cluster); the compute of one step at 8 GPUs for InternEvo. All figures hold within 15 %, but for:

- InternEvo's (1,1,N) at 1024 GPUs, 17 % too slow: N chains of N hops grow with the square of N, and the runs do not,
  since a rank begins the next broadcast before the last has come to the end of its chain.
- The *extra* seconds of (1,1,N) over (1,1,8), taken alone: at 32 GPUs 0.29 are predicted and 0.19 were published, since
  part of the broadcasts runs beside the next forward pass; at 128, 0.35 and 0.42. Their growth from 8 to 512 holds.
- ZeRO++'s backward is its traffic *and* its arithmetic: the traffic alone is a quarter less than was logged, and the
  arithmetic of a recomputed backward is what is missing, so that run hid neither behind the other.
"""

from __future__ import annotations

import pytest
from network_anchors import (
    INTERNEVO,
    TUTORIAL,
    Anchor,
    forward_compute_s,
    internevo,
    slope,
    zero_3,
    zeropp,
    zeropp_backward_s,
    zeropp_forward_s,
)

from hw_profiles.load import load

TOLERANCE = 0.15
MISSED = "(1,1,N) at 1024 GPUs"


@pytest.mark.parametrize("anchor", [*zero_3(), *zeropp()], ids=lambda anchor: anchor.figure)
def test_phases_of_zero_3_and_zeropp_over_one_port_per_node(anchor: Anchor) -> None:
    assert anchor.predicted == pytest.approx(anchor.published, rel=float(TUTORIAL["tolerance"]["network"]))


def test_compute_is_what_the_network_hides_of_zero_3_and_is_missing_in_the_traffic_of_zeropp() -> None:
    forward, backward = zero_3()
    assert forward_compute_s() < forward.published / 10
    assert 3 * forward_compute_s() < backward.published / 5
    assert forward_compute_s() < zeropp_forward_s()
    network_s, arithmetic_s = zeropp_backward_s()
    logged_s = float(TUTORIAL["zeropp"]["backward_ms"]) / 1e3
    assert network_s < 0.85 * logged_s
    assert network_s + arithmetic_s == pytest.approx(logged_s, rel=TOLERANCE)


def test_the_port_is_the_only_thing_that_is_changed_of_the_shipped_machine() -> None:
    network = load("dgx2-v100-32gb").levels[-1]
    assert network.unit_bytes_per_s == 8 * 12.5e9
    assert network.efficiency["all_gather"] == 0.84


@pytest.mark.parametrize(
    "anchor",
    [each for each in internevo() if each.unit == "tokens/s" and each.figure != MISSED],
    ids=lambda anchor: anchor.figure,
)
def test_throughput_with_optimizer_states_over_all_ranks_and_inside_the_node(anchor: Anchor) -> None:
    tolerance = float(INTERNEVO["tolerance"]["tokens_per_s"])
    assert anchor.predicted == pytest.approx(anchor.published, rel=tolerance)


def test_the_figure_that_is_missed_is_missed_by_what_is_said() -> None:
    (missed,) = [each for each in internevo() if each.figure == MISSED]
    assert missed.error == pytest.approx(-0.17, abs=0.01)


def test_the_extra_time_of_a_global_update_grows_with_the_ranks_as_published() -> None:
    anchor = slope()
    assert anchor.predicted == pytest.approx(anchor.published, rel=float(INTERNEVO["tolerance"]["slope"]))
