"""ZeRO++ beats ZeRO-3 on 1 and 4 ports per node as published, within 15 %."""

from __future__ import annotations

import pytest
from decisions import Anchor
from decisions_zeropp import PORT_EFFICIENCY, further_s, misfit, phases, ratios, throughputs

TOLERANCE = 0.15
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_port_is_fitted_to_the_tutorial_and_large_products_to_further_tokens() -> None:
    assert misfit(PORT_EFFICIENCY) < min(misfit(PORT_EFFICIENCY - 0.02), misfit(PORT_EFFICIENCY + 0.02))
    for anchor in further_s():
        assert anchor.predicted == pytest.approx(anchor.published, rel=0.01)


def test_each_phase_of_the_tutorial_takes_what_it_logs() -> None:
    for anchor in phases():
        assert anchor.predicted == pytest.approx(anchor.published, rel=TOLERANCE)


def test_zeropp_is_faster_by_the_published_ratio_on_one_and_on_four_ports() -> None:
    found = ratios()
    assert len(found) == 4
    for anchor in found:
        assert anchor.predicted > 1
        assert anchor.predicted == pytest.approx(anchor.published, rel=TOLERANCE)


def test_it_gains_most_where_the_network_is_slow_and_tokens_are_few() -> None:
    def order(of: str) -> list[int]:
        return sorted(range(4), key=lambda place: -getattr(ratios()[place], of))

    assert order("predicted") == order("published") == [0, 1, 2, 3]


def test_nothing_else_explains_both_the_log_and_the_ratios() -> None:
    """Were all hidden that compute can hide, a phase of the log and two of four ratios would be out of the band."""

    def missed(anchors: tuple[Anchor, ...]) -> int:
        return sum(abs(anchor.error) > TOLERANCE for anchor in anchors)

    assert (missed(phases()), missed(ratios())) == (0, 0)
    assert (missed(phases(overlap=1.0)), missed(ratios(overlap=1.0))) == (1, 2)


def test_rates_are_missed_by_what_is_said() -> None:
    """One efficiency of a port is too much to ask for 1 and 4 ports of 24 nodes: -13 to +24 %."""
    errors = [anchor.error for anchor in throughputs() if anchor.unit == "TFLOPS"]
    assert min(errors) == pytest.approx(-0.13, abs=0.01)
    assert max(errors) == pytest.approx(0.23, abs=0.01)
