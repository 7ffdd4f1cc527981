"""The port model's numbers by hand, and how measured curves are read."""

from __future__ import annotations

import pytest

from costmodels.collectives import ENTERING_BYTES, collective_time, level_loads, port_time
from costmodels.network import Network, NetworkCurve, NetworkLevel

NODES_OF_8 = Network(levels=(NetworkLevel(8, 300e9, 0.0), NetworkLevel(8, 200e9, 0.0)))
THREE_LEVELS = Network(
    levels=(NetworkLevel(2, 200e9, 1e-6), NetworkLevel(4, 100e9, 2e-6), NetworkLevel(48, 100e9, 10e-6))
)
MEASURED = Network(
    levels=NODES_OF_8.levels,
    curves=(NetworkCurve("all_gather", 1, 8, ((1000, 1e-3), (2000, 2e-3), (4000, 1.5e-3), (8000, 4e-3))),),
)
GB = 10**9


def test_all_gather_between_8_and_64_shares_the_nodes_network_among_its_8_groups() -> None:
    (load,) = level_loads("all_gather", 8, 64, GB, NODES_OF_8)
    assert (load.level, load.units, load.groups, load.group_ranks) == (1, 8, 8, 1)
    assert load.entering_bytes == 8 * GB * 7 / 8
    assert collective_time("all_gather", 8, 64, GB, NODES_OF_8).seconds == pytest.approx(7 * GB / 200e9)


def test_all_gather_inside_a_node_uses_only_its_links() -> None:
    assert collective_time("all_gather", 1, 8, GB, NODES_OF_8).seconds == pytest.approx(GB * 7 / 8 / 300e9)


def test_all_gather_over_the_world_is_bound_by_the_network_that_one_group_has_alone() -> None:
    inner, outer = level_loads("all_gather", 1, 64, GB, NODES_OF_8)
    assert (inner.groups, outer.groups) == (1, 1)
    assert collective_time("all_gather", 1, 64, GB, NODES_OF_8).seconds == pytest.approx(GB * 7 / 8 / 200e9)


def test_all_to_all_over_the_world_takes_every_byte_from_outside_the_node_into_it() -> None:
    _, outer = level_loads("all_to_all", 1, 64, 64_000, NODES_OF_8)
    assert outer.entering_bytes == 8 * 64_000 * 56 / 64


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_a_broadcast_and_a_reduce_pass_the_whole_message_through_each_unit(operation: str) -> None:
    assert [load.entering_bytes for load in level_loads(operation, 1, 64, GB, NODES_OF_8)] == [GB, GB]  # type: ignore[arg-type]


def test_a_ring_crosses_each_level_as_often_as_it_has_links_there() -> None:
    loads = level_loads("all_gather", 1, 384, GB, THREE_LEVELS)
    assert [load.ring_startups for load in loads] == [192, 144, 47]
    assert sum(load.ring_startups for load in loads) == 384 - 1
    quiet = port_time("all_gather", 1, 384, 1, THREE_LEVELS)
    assert quiet == pytest.approx(192 * 1e-6 + 144 * 2e-6 + 47 * 10e-6)


def test_a_small_all_reduce_takes_a_tree() -> None:
    assert port_time("all_reduce", 1, 384, 1, THREE_LEVELS) == pytest.approx(2 * (1e-6 + 2 * 2e-6 + 6 * 10e-6))


def test_groups_between_packages_share_the_package_links() -> None:
    (load,) = level_loads("all_gather", 2, 8, GB, THREE_LEVELS)
    assert (load.level, load.groups, load.units) == (1, 2, 4)


def test_efficiency_slows_only_its_operation() -> None:
    slow = Network(levels=(NetworkLevel(8, 300e9, 0.0, (("all_gather", 0.5),)), NetworkLevel(8, 200e9, 0.0)))
    assert port_time("all_gather", 1, 8, GB, slow) == 2 * port_time("all_gather", 1, 8, GB, NODES_OF_8)
    assert port_time("reduce_scatter", 1, 8, GB, slow) == port_time("reduce_scatter", 1, 8, GB, NODES_OF_8)


@pytest.mark.parametrize(("degree_from", "degree_to"), [(3, 8), (1, 12), (8, 24), (16, 8), (1, 128)])
def test_degrees_off_the_levels_are_refused(degree_from: int, degree_to: int) -> None:
    with pytest.raises(ValueError, match=f"{degree_from} and {degree_to}"):
        collective_time("all_gather", degree_from, degree_to, GB, NODES_OF_8)


@pytest.mark.parametrize(
    ("message_bytes", "seconds", "provenance"),
    [
        (500, 1e-3, "interpolated"),
        (1000, 1e-3, "measured"),
        (1500, 1.25e-3, "interpolated"),
        (3000, 1.5e-3, "interpolated"),
        (4000, 1.5e-3, "measured"),
        (8000, 4e-3, "measured"),
        (12000, 6.5e-3, "modelled"),
    ],
)
def test_a_measured_curve_comes_first_and_noise_never_makes_more_bytes_faster(
    message_bytes: int, seconds: float, provenance: str
) -> None:
    time = collective_time("all_gather", 1, 8, message_bytes, MEASURED)
    assert (time.seconds, time.provenance) == (pytest.approx(seconds), provenance)


def test_a_curve_serves_only_its_own_operation_and_groups() -> None:
    assert collective_time("reduce_scatter", 1, 8, 1000, MEASURED).provenance == "modelled"
    assert collective_time("all_gather", 1, 4, 1000, MEASURED).provenance == "modelled"


def test_a_flat_end_of_a_curve_is_no_infinite_bandwidth() -> None:
    flat = Network(NODES_OF_8.levels, (NetworkCurve("all_gather", 1, 8, ((1000, 1e-3), (2000, 1e-3))),))
    assert collective_time("all_gather", 1, 8, 4000, flat).seconds == pytest.approx(2e-3)


def test_the_printed_formula_gives_the_models_bytes() -> None:
    (load,) = level_loads("all_gather", 8, 64, GB, NODES_OF_8)
    assert ENTERING_BYTES["all_gather"](GB, load.units, load.groups, load.group_ranks, 8) == load.entering_bytes
