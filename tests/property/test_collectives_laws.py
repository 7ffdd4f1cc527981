"""Laws that the time of a collective obeys on every machine."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.algorithms import PHASES, Load, loads
from costmodels.collectives import collective_time, modelled_time
from costmodels.degrees import legal_degrees
from costmodels.engine import Operation
from costmodels.geometry import geometry
from costmodels.network import Network, NetworkCurve, NetworkLevel

OPERATIONS: tuple[Operation, ...] = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "reduce",
    "broadcast",
    "all_to_all",
)
operations = st.sampled_from(OPERATIONS)
sizes_bytes = st.integers(min_value=1, max_value=2**40)
levels = st.lists(
    st.builds(
        NetworkLevel,
        size=st.integers(min_value=1, max_value=8),
        unit_bytes_per_s=st.floats(min_value=1e6, max_value=1e12),
        alpha_s=st.floats(min_value=0, max_value=1e-3),
    ),
    min_size=1,
    max_size=3,
)
algorithms = st.fixed_dictionaries(
    {
        operation: st.sampled_from([name for name, operations in PHASES.items() if operation in operations]).map(
            lambda name: (name,)
        )
        for operation in OPERATIONS
    }
).map(lambda chosen: tuple(chosen.items()))
networks = st.builds(
    lambda chosen, run_by, hidden: Network(tuple(chosen), algorithms=run_by, startups_hidden=hidden),
    levels,
    algorithms,
    st.floats(min_value=0, max_value=1),
)


@st.composite
def groups(draw: st.DrawFn) -> tuple[Network, int, int]:
    """A network with two degrees of it that nest."""
    network = draw(networks)
    legal = legal_degrees(tuple(level.size for level in network.levels))
    outer = draw(st.sampled_from(legal))
    inner = draw(st.sampled_from([degree for degree in legal if outer % degree == 0]))
    return network, inner, outer


def port_loads(operation: Operation, inner: int, outer: int, message_bytes: int, network: Network) -> tuple[Load, ...]:
    spanned = geometry(tuple(level.size for level in network.levels), inner, outer)
    (phase,) = loads("port", operation, spanned, message_bytes)
    return phase


@settings(deadline=None)
@given(groups(), operations, sizes_bytes, sizes_bytes)
def test_more_bytes_are_never_faster(
    group: tuple[Network, int, int], operation: Operation, one: int, other: int
) -> None:
    network, inner, outer = group
    small, large = sorted((one, other))
    assert (
        collective_time(operation, inner, outer, small, network).seconds
        <= collective_time(operation, inner, outer, large, network).seconds
    )


points = st.dictionaries(sizes_bytes, st.floats(min_value=1e-6, max_value=10), min_size=1, max_size=8)


@settings(deadline=None)
@given(points, sizes_bytes, sizes_bytes)
def test_more_bytes_are_never_faster_on_a_noisy_curve(measured: dict[int, float], one: int, other: int) -> None:
    curve = NetworkCurve("all_gather", 1, 2, tuple(sorted(measured.items())))
    network = Network((NetworkLevel(2, 1e9, 0.0),), (curve,))
    small, large = sorted((one, other))
    before = collective_time("all_gather", 1, 2, small, network).seconds
    after = collective_time("all_gather", 1, 2, large, network).seconds
    assert before <= after * (1 + 1e-12)


@settings(deadline=None)
@given(groups(), operations, sizes_bytes, st.floats(min_value=1, max_value=100))
def test_more_bandwidth_is_never_slower(
    group: tuple[Network, int, int], operation: Operation, message_bytes: int, factor: float
) -> None:
    network, inner, outer = group
    wider = tuple(
        dataclasses.replace(level, unit_bytes_per_s=level.unit_bytes_per_s * factor) for level in network.levels
    )
    before = modelled_time(operation, inner, outer, message_bytes, network).seconds
    after = modelled_time(operation, inner, outer, message_bytes, dataclasses.replace(network, levels=wider)).seconds
    assert after <= before * (1 + 1e-12)


@settings(deadline=None)
@given(groups(), operations, sizes_bytes)
def test_a_group_of_one_rank_costs_nothing(
    group: tuple[Network, int, int], operation: Operation, message_bytes: int
) -> None:
    network, inner, _ = group
    assert collective_time(operation, inner, inner, message_bytes, network).seconds == 0


@settings(deadline=None)
@given(groups(), sizes_bytes)
def test_an_all_reduce_moves_twice_the_bytes_of_a_reduce_scatter(
    group: tuple[Network, int, int], message_bytes: int
) -> None:
    network, inner, outer = group
    once = [load.entering_bytes for load in port_loads("reduce_scatter", inner, outer, message_bytes, network)]
    twice = [load.entering_bytes for load in port_loads("all_reduce", inner, outer, message_bytes, network)]
    assert twice == [2 * entering for entering in once]


@settings(deadline=None)
@given(groups())
def test_a_ring_has_one_hop_fewer_than_ranks(group: tuple[Network, int, int]) -> None:
    network, inner, outer = group
    found = port_loads("all_gather", inner, outer, 1, network)
    assert sum(load.startups[0] for load in found) == outer // inner - 1


@settings(deadline=None)
@given(groups(), sizes_bytes)
def test_bytes_into_a_rank_over_all_levels_are_all_but_its_own_shard(
    group: tuple[Network, int, int], message_bytes: int
) -> None:
    network, inner, outer = group
    ranks = outer // inner
    found = port_loads("all_to_all", inner, outer, message_bytes, network)
    per_rank = sum(load.entering_bytes / (load.geometry.groups * load.geometry.group_ranks) for load in found)
    assert abs(per_rank - message_bytes * (ranks - 1) / ranks) <= 1e-9 * message_bytes
