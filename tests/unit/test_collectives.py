"""The port model's numbers by hand, and how measured curves are read."""

from __future__ import annotations

from itertools import pairwise

import pytest

from costmodels.algorithms import ARGUMENTS, FORMULAS, PHASES, Algorithm, Load, loads
from costmodels.collectives import collective_time, modelled_time
from costmodels.engine import Operation
from costmodels.geometry import Geometry, geometry
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


def port_loads(
    operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network
) -> tuple[Load, ...]:
    (phase,) = loads("port", operation, geometry(sizes(network), degree_from, degree_to), message_bytes)
    return phase


def sizes(network: Network) -> tuple[int, ...]:
    return tuple(level.size for level in network.levels)


def port_s(operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network) -> float:
    return modelled_time(operation, degree_from, degree_to, message_bytes, network, "port").seconds


def test_all_gather_between_8_and_64_shares_the_nodes_network_among_its_8_groups() -> None:
    (load,) = port_loads("all_gather", 8, 64, GB, NODES_OF_8)
    assert load.geometry == Geometry(level=1, units=8, groups=8, group_ranks=1, group_size=8)
    assert load.entering_bytes == 8 * GB * 7 / 8
    assert collective_time("all_gather", 8, 64, GB, NODES_OF_8).seconds == pytest.approx(7 * GB / 200e9)


def test_all_gather_inside_a_node_uses_only_its_links() -> None:
    assert collective_time("all_gather", 1, 8, GB, NODES_OF_8).seconds == pytest.approx(GB * 7 / 8 / 300e9)


def test_all_gather_over_the_world_is_bound_by_the_network_that_one_group_has_alone() -> None:
    inner, outer = port_loads("all_gather", 1, 64, GB, NODES_OF_8)
    assert (inner.geometry.groups, outer.geometry.groups) == (1, 1)
    assert collective_time("all_gather", 1, 64, GB, NODES_OF_8).seconds == pytest.approx(GB * 7 / 8 / 200e9)


def test_all_to_all_over_the_world_takes_every_byte_from_outside_the_node_into_it() -> None:
    _, outer = port_loads("all_to_all", 1, 64, 64_000, NODES_OF_8)
    assert outer.entering_bytes == 8 * 64_000 * 56 / 64


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_a_broadcast_and_a_reduce_pass_the_whole_message_through_each_unit(operation: str) -> None:
    assert [load.entering_bytes for load in port_loads(operation, 1, 64, GB, NODES_OF_8)] == [GB, GB]  # type: ignore[arg-type]


def test_a_ring_crosses_each_level_as_often_as_it_has_links_there() -> None:
    hops = [load.startups for load in port_loads("all_gather", 1, 384, GB, THREE_LEVELS)]
    assert hops == [(192,), (144,), (47,)]
    assert 192 + 144 + 47 == 384 - 1
    quiet = port_s("all_gather", 1, 384, 1, THREE_LEVELS)
    assert quiet == pytest.approx(192 * 1e-6 + 144 * 2e-6 + 47 * 10e-6)


def test_a_small_all_reduce_takes_a_tree() -> None:
    assert port_s("all_reduce", 1, 384, 1, THREE_LEVELS) == pytest.approx(2 * (1e-6 + 2 * 2e-6 + 6 * 10e-6))


def test_groups_between_packages_share_the_package_links() -> None:
    (load,) = port_loads("all_gather", 2, 8, GB, THREE_LEVELS)
    assert (load.geometry.level, load.geometry.groups, load.geometry.units) == (1, 2, 4)


def test_efficiency_slows_only_its_operation() -> None:
    slow = Network(levels=(NetworkLevel(8, 300e9, 0.0, (("all_gather", 0.5),)), NetworkLevel(8, 200e9, 0.0)))
    assert port_s("all_gather", 1, 8, GB, slow) == 2 * port_s("all_gather", 1, 8, GB, NODES_OF_8)
    assert port_s("reduce_scatter", 1, 8, GB, slow) == port_s("reduce_scatter", 1, 8, GB, NODES_OF_8)


@pytest.mark.parametrize(("degree_from", "degree_to"), [(3, 8), (1, 12), (8, 24), (16, 8), (1, 128)])
def test_degrees_off_the_levels_are_refused(degree_from: int, degree_to: int) -> None:
    with pytest.raises(ValueError, match=f"{degree_from} and {degree_to}"):
        collective_time("all_gather", degree_from, degree_to, GB, NODES_OF_8)


@pytest.mark.parametrize(
    ("message_bytes", "seconds", "provenance"),
    [
        (500, 0.5e-3, "modelled"),
        (1000, 1e-3, "measured"),
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


@pytest.mark.parametrize("message_bytes", [2048, 3000, 50_000, 3 << 20])
def test_between_points_a_curve_is_exact_for_a_bandwidth_and_for_a_start_up(message_bytes: int) -> None:
    points = tuple((1 << power, (1 << power) / 1e9) for power in range(10, 25, 2))
    proportional = Network(NODES_OF_8.levels, (NetworkCurve("all_gather", 1, 8, points),))
    time = collective_time("all_gather", 1, 8, message_bytes, proportional)
    assert (time.seconds, time.provenance) == (pytest.approx(message_bytes / 1e9), "interpolated")
    flat = Network(NODES_OF_8.levels, (NetworkCurve("all_gather", 1, 8, tuple((size, 1e-3) for size, _ in points)),))
    assert collective_time("all_gather", 1, 8, message_bytes, flat).seconds == pytest.approx(1e-3)


def test_between_points_start_up_plus_bytes_over_bandwidth_is_met_within_three_per_cent() -> None:
    def truth_s(size: float) -> float:
        return 20e-6 + size / 10e9

    points = tuple((1 << power, truth_s(1 << power)) for power in range(10, 27, 2))
    network = Network(NODES_OF_8.levels, (NetworkCurve("all_gather", 1, 8, points),))
    for power in range(11, 26, 2):
        seconds = collective_time("all_gather", 1, 8, 1 << power, network).seconds
        assert seconds == pytest.approx(truth_s(1 << power), rel=0.03)


def test_a_curve_serves_only_its_own_operation_and_groups() -> None:
    other = collective_time("reduce_scatter", 1, 8, 1000, MEASURED)
    assert (other.provenance, other.likened_to) == ("modelled", None)
    across = collective_time("all_gather", 8, 64, 1000, MEASURED)
    assert (across.provenance, across.likened_to) == ("modelled", None)


def test_groups_of_another_shape_over_the_same_level_take_what_the_measured_take_for_as_long_a_message() -> None:
    # In groups of 4, 3/4 of the message enters a rank, and 7/8 in groups of 8.
    time = collective_time("all_gather", 1, 4, 7000, MEASURED)
    assert (time.provenance, time.likened_to) == ("modelled", (1, 8))
    # A noisy curve that is not straight comes through: 6000 bytes over 8 ranks take as long as 7000 over 4.
    assert time.seconds == pytest.approx(collective_time("all_gather", 1, 8, 6000, MEASURED).seconds)


def test_small_messages_take_as_many_start_ups_more_as_their_groups_have() -> None:
    # All is start-up here: seconds of 0.9 and 1.1 ms are those of every small message.
    levels = (NetworkLevel(8, 300e9, 1e-4, startup=(("all_gather", 1.5),)),)
    curve = NetworkCurve("all_gather", 1, 8, ((8, 0.9e-3), (64, 1.1e-3), (1 << 30, 5e-3)))
    network = Network(levels, (curve,), startups_hidden=1.0)
    eight_s, two_s = (modelled_time("all_gather", 1, degree, 8, network).seconds for degree in (8, 2))
    assert 0.9e-3 <= collective_time("all_gather", 1, 2, 8, network).seconds * eight_s / two_s <= 1.1e-3


def test_an_operation_that_is_run_in_two_ways_jumps_at_neither() -> None:
    level = NetworkLevel(8, 217e9, 4.9e-6)
    ways = (("all_reduce", ("ring", "tree")),)
    model = Network((level,), algorithms=ways)
    # Slower than the model where one protocol gives way to the next, as 8 A100 are.
    slower = {17: 1.2, 18: 1.25, 19: 1.5, 20: 1.65, 21: 1.6, 22: 1.6, 23: 1.4, 24: 1.3, 25: 1.15}
    points = tuple(
        (1 << power, modelled_time("all_reduce", 1, 8, 1 << power, model).seconds * slower.get(power, 1.0))
        for power in range(3, 34)
    )
    measured = Network((level,), (NetworkCurve("all_reduce", 1, 8, points),), ways)
    for degree in (2, 4):
        seconds = [
            collective_time("all_reduce", 1, degree, int(2 ** (each / 2)), measured).seconds for each in range(66)
        ]
        steps = [later / before for before, later in pairwise(seconds)]
        assert 1 <= min(steps) <= max(steps) < 1.6


@pytest.mark.parametrize("hidden", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("message_bytes", [1, 1 << 10, 1 << 20, 1 << 25, 1 << 36])
def test_groups_of_another_shape_change_their_protocol_where_transfers_outgrow_start_ups(
    message_bytes: int, hidden: float
) -> None:
    # Twice the time of the model from where both are equal, which is at a smaller message over fewer ranks.
    level, slower = NetworkLevel(8, 200e9, 5e-6), 2.0
    model = Network((level,), algorithms=(("all_gather", ("ring",)),), startups_hidden=hidden)
    points = []
    for power in range(3, 34):
        modelled = modelled_time("all_gather", 1, 8, 1 << power, model)
        is_late = modelled.transfer_s > modelled.startups_s
        points.append((1 << power, modelled.seconds * (slower if is_late else 1.0)))
    measured = Network(model.levels, (NetworkCurve("all_gather", 1, 8, tuple(points)),), model.algorithms, (), hidden)
    two = modelled_time("all_gather", 1, 2, message_bytes, model)
    expected_s = two.seconds * (slower if two.transfer_s > two.startups_s else 1.0)
    time = collective_time("all_gather", 1, 2, message_bytes, measured)
    assert (time.seconds, time.likened_to) == (pytest.approx(expected_s, rel=1e-3), (1, 8))


def test_below_a_curve_that_begins_large_the_model_goes_on() -> None:
    level = NetworkLevel(8, 200e9, 5e-6)
    truth = Network(levels=(level,))
    seconds = {size: collective_time("all_gather", 1, 8, size, truth).seconds for size in (1000, GB, 2 * GB)}
    points = tuple((size, 1.1 * seconds[size]) for size in (GB, 2 * GB))
    measured = Network(levels=(level,), curves=(NetworkCurve("all_gather", 1, 8, points),))
    time = collective_time("all_gather", 1, 8, 1000, measured)
    assert (time.seconds, time.likened_to) == (pytest.approx(1.1 * seconds[1000]), (1, 8))


@pytest.mark.parametrize("end", [1.0001, 3.0])
def test_noise_in_the_last_two_points_is_no_bandwidth(end: float) -> None:
    level = NetworkLevel(8, 200e9, 0.0)
    curve = NetworkCurve("all_gather", 1, 8, ((GB // 2, 4.4e-3), (GB, 4.4e-3 * end)))
    time = collective_time("all_gather", 1, 8, 100 * GB, Network(levels=(level,), curves=(curve,)))
    assert time.seconds == pytest.approx(min(max(4.4e-3 * end + 4.4e-3 * (end - 1) * 198, 220e-3 * end), 880e-3 * end))


def test_a_flat_end_of_a_curve_is_no_infinite_bandwidth() -> None:
    flat = Network(NODES_OF_8.levels, (NetworkCurve("all_gather", 1, 8, ((1000, 1e-3), (2000, 1e-3))),))
    assert collective_time("all_gather", 1, 8, 4000, flat).seconds == pytest.approx(2e-3)


def test_the_printed_formula_gives_the_models_bytes() -> None:
    for (algorithm, operation), formulas in FORMULAS.items():
        (at,) = geometry((8, 8), 8, 64)
        values = (GB, at.units, at.groups, at.group_ranks, at.group_size, at.stages)
        assert len(values) == len(ARGUMENTS)
        phases = loads(algorithm, operation, (at,), GB)
        assert [phase[0].entering_bytes for phase in phases] == pytest.approx(
            [formula(*values) for formula in formulas]
        )


TWO_NODES = Network(levels=(NetworkLevel(8, 300e9, 1e-6), NetworkLevel(2, 100e9, 10e-6)))


def by(algorithm: Algorithm, operation: Operation, degree_from: int, degree_to: int, network: Network) -> float:
    return modelled_time(operation, degree_from, degree_to, GB, network, algorithm).seconds


def test_a_flat_ring_brings_all_but_a_shard_into_each_node() -> None:
    assert by("ring", "all_gather", 1, 16, TWO_NODES) == pytest.approx(GB * 15 / 16 / 100e9 + 14 * 1e-6 + 1 * 10e-6)
    # What must enter a node is half of it: the other half is there.
    assert by("port", "all_gather", 1, 16, TWO_NODES) == pytest.approx(GB / 2 / 100e9 + 14e-6 + 10e-6)


@pytest.mark.parametrize(("degree_from", "degree_to", "links"), [(1, 8, 7), (1, 4, 3), (1, 2, 1), (2, 8, 3), (4, 8, 1)])
def test_a_group_in_a_mesh_has_the_links_between_its_members(degree_from: int, degree_to: int, links: int) -> None:
    mesh = Network((NetworkLevel(8, 7 * 64e9, 0.0, is_mesh=True),))
    size = degree_to // degree_from
    gathered = by("ring", "all_gather", degree_from, degree_to, mesh)
    assert gathered == pytest.approx(GB * (size - 1) / size / (links * 64e9))


@pytest.mark.parametrize(("nodes", "times"), [(2, 1), (3, 2), (4, 2), (16, 2)])
def test_a_tree_brings_a_message_into_two_nodes_once_and_into_more_twice(nodes: int, times: int) -> None:
    # NVIDIA/nccl issue 812: on two nodes S, less than a ring has; beyond two there is no such gain.
    flat = Network((NetworkLevel(8, 1e15, 0.0), NetworkLevel(nodes, 100e9, 0.0)))
    assert by("tree", "all_reduce", 1, 8 * nodes, flat) == pytest.approx(times * GB / 100e9)


def test_a_tree_beats_a_ring_between_two_nodes_and_for_small_messages_everywhere() -> None:
    assert by("tree", "all_reduce", 8, 16, TWO_NODES) == pytest.approx(8 * GB / 100e9 + 2 * 10e-6)
    assert by("tree", "all_reduce", 1, 16, TWO_NODES) < by("ring", "all_reduce", 1, 16, TWO_NODES)
    small = [modelled_time("all_reduce", 1, 384, 8, THREE_LEVELS, each).seconds for each in ("tree", "ring")]
    assert small[0] < small[1]


def test_a_hierarchical_all_gather_takes_the_levels_in_turn_and_the_overlapping_ring_at_once() -> None:
    inside_s, between_s = GB * 7 / 8 / 300e9, GB / 2 / 100e9
    startups_s = 7 * 1e-6 + 1 * 10e-6
    assert by("hierarchical", "all_gather", 1, 16, TWO_NODES) == pytest.approx(inside_s + between_s + startups_s)
    assert by("ho_ring", "all_gather", 1, 16, TWO_NODES) == pytest.approx(max(inside_s, between_s) + startups_s)


def test_a_binomial_broadcast_sends_the_message_to_every_rank_of_the_other_nodes() -> None:
    slow = Network(levels=(NetworkLevel(2, 100e9, 0.0), NetworkLevel(2, 25e6, 0.0)))
    assert modelled_time("broadcast", 1, 4, 1 << 20, slow, "tree").seconds == pytest.approx(2 * (1 << 20) / 25e6)
    # In both groups at once, each of one rank per node, it is as much.
    assert modelled_time("broadcast", 2, 4, 1 << 20, slow, "tree").seconds == pytest.approx(2 * (1 << 20) / 25e6)


def test_a_reduce_that_gathers_brings_the_other_nodes_shards_to_the_root_after_its_ring() -> None:
    ring_s, gather_s = GB * 15 / 16 / 100e9, GB * 8 / 16 / 100e9
    startups_s = 14e-6 + 10e-6 + 7 * 1e-6 + 8 * 10e-6
    assert by("ring_then_gather", "reduce", 1, 16, TWO_NODES) == pytest.approx(ring_s + gather_s + startups_s)


def test_the_fastest_of_a_networks_algorithms_counts() -> None:
    both = Network(TWO_NODES.levels, algorithms=(("all_reduce", ("ring", "tree")),))
    assert modelled_time("all_reduce", 1, 16, GB, both).algorithm == "tree"
    assert collective_time("all_reduce", 1, 16, GB, both).seconds == by("tree", "all_reduce", 1, 16, TWO_NODES)
    # Inside one node a tree is a chain, as long as the ring: the first of equals counts.
    assert modelled_time("all_reduce", 1, 8, GB, both).algorithm == "ring"


def test_no_algorithm_beats_the_port_in_bytes() -> None:
    for algorithm, operations in PHASES.items():
        for operation in operations:
            for degrees in ((1, 8), (1, 16), (8, 16), (2, 16)):
                mine = modelled_time(operation, *degrees, GB, TWO_NODES, algorithm)
                port = modelled_time(operation, *degrees, GB, TWO_NODES, "port")
                own_s, least_s = (sum(phase.bandwidth_s for phase in each.phases) for each in (mine, port))
                assert own_s >= least_s * (1 - 1e-12), (algorithm, operation, degrees)


def test_start_ups_hide_behind_the_transfer_as_far_as_the_machine_lets_them() -> None:
    exposed = modelled_time("all_gather", 1, 8, 1 << 20, TWO_NODES)
    hidden = modelled_time("all_gather", 1, 8, 1 << 20, Network(TWO_NODES.levels, startups_hidden=1.0))
    transfer_s = (1 << 20) * 7 / 8 / 300e9
    assert exposed.seconds == pytest.approx(transfer_s + 7e-6)
    assert hidden.seconds == pytest.approx(max(transfer_s, 7e-6))


def test_a_call_takes_its_time_however_few_its_ranks() -> None:
    slow = Network(TWO_NODES.levels, calls_s=(("all_gather", 1e-3),))
    assert modelled_time("all_gather", 1, 8, 8, slow).seconds == pytest.approx(1e-3 + 7e-6, rel=1e-3)


def test_an_algorithm_refuses_what_it_cannot_run() -> None:
    with pytest.raises(ValueError, match="direct cannot run all_gather"):
        modelled_time("all_gather", 1, 8, GB, TWO_NODES, "direct")
