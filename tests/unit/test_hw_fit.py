"""A profile made of a measurement gives the measured numbers back, and says what was odd in them."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from costmodels.collectives import modelled_time
from costmodels.network import Network, NetworkLevel
from hw_profiles.fit.fit import fit
from hw_profiles.measure.measurement import Measurement
from hw_profiles.measure.structure import Structure
from hw_profiles.run_by import GLOO
from hw_profiles.schema import Curve, CurvePoint, HardwareProfile, Operation, Pair
from planner.machine import machine

OPERATIONS: tuple[Operation, ...] = ("all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all")
TRUTH = Network(
    levels=(NetworkLevel(4, 10e9, 5e-6), NetworkLevel(2, 2e9, 20e-6)),
    algorithms=tuple(sorted(GLOO.items())),
)
SIZES_BYTES = tuple(1 << power for power in range(10, 28, 2))
ALL_KINDS = ((1, 2), (1, 4), (2, 4), (1, 8), (2, 8), (4, 8))


def curve(operation: Operation, inner: int, outer: int) -> Curve:
    """What ranks would measure on a machine that is exactly TRUTH."""
    points = tuple(
        CurvePoint(bytes=size, seconds=modelled_time(operation, inner, outer, size, TRUTH).seconds)
        for size in SIZES_BYTES
    )
    return Curve(operation=operation, degree_from=inner, degree_to=outer, points=points)


def measured(kinds: tuple[tuple[int, int], ...], num_nodes: int = 2, ranks: int = 4, **changes: Any) -> Measurement:
    structure = Structure(sizes=(ranks, num_nodes), names=("node", "cluster"), node_level=0, decided="nodes by host")
    fields: dict[str, Any] = {
        "structure": structure,
        "logical": True,
        "kind": "cpu",
        "devices": ("a CPU",) * (num_nodes * ranks),
        "memory_bytes": 4 << 30,
        "reserved_bytes": 1 << 28,
        "host_memory_bytes": 32 << 30,
        "num_cores": 8,
        "matmul_flop_per_s": {"fp32": 12345678901.0},
        "attention_flop_per_s": {"fp32": 2345678901.0},
        "memory_bytes_per_s": 8e9,
        "link_bytes_per_s": 4e9,
        "operator_launch_s": 4e-6,
        "overlap": 0.25,
        "curves": tuple(curve(operation, *kind) for kind in kinds for operation in OPERATIONS),
        "transport": "gloo over TCP, interface lo",
        "how": "by hand",
    }
    return Measurement.model_validate({**fields, **changes})


@functools.cache
def fitted() -> HardwareProfile:
    return fit(measured(ALL_KINDS))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("inner", "outer"), [(1, 4), (4, 8), (1, 8)])
def test_the_model_of_a_profile_gives_the_measured_seconds_back(operation: Operation, inner: int, outer: int) -> None:
    network = machine(fitted(), "fp32").network
    for size_bytes in (1 << 12, 1 << 20, 1 << 26):
        truth_s = modelled_time(operation, inner, outer, size_bytes, TRUTH).seconds
        assert modelled_time(operation, inner, outer, size_bytes, network).seconds == pytest.approx(truth_s, rel=0.05)


def test_what_runs_beside_compute_is_what_was_measured() -> None:
    assert fitted().known_device.overlap == 0.25
    assert "beside products" in fitted().sources["device.overlap"]


def test_raw_points_and_pairs_stay() -> None:
    pairs = (Pair(source=0, target=1, bytes_per_s=123456789.0, latency_s=1.23456e-5),)
    measurement = measured(ALL_KINDS, pairs=pairs)
    profile = fit(measurement)
    assert [each.operation for each in profile.curves] == [each.operation for each in measurement.curves]
    for found, own in zip(profile.curves[0].points, measurement.curves[0].points, strict=True):
        assert found.seconds == pytest.approx(own.seconds, rel=1e-3)
    assert profile.pairs[0].bytes_per_s == 123500000.0


def test_a_level_that_was_not_measured_says_so() -> None:
    one_node = fit(measured(((1, 2), (1, 4), (2, 4)), num_nodes=1))
    assert "derived from the level node" in one_node.sources["levels.1"]
    assert "by hand" in one_node.sources["levels.0"]
    # A node of 4 ranks carries what its 4 ranks carry.
    node, cluster = one_node.levels
    assert cluster.unit_bytes_per_s == pytest.approx(4 * node.unit_bytes_per_s, rel=1e-3)
    alone = fit(measured((), num_nodes=1, ranks=1))
    assert "no group of the measured ranks crosses it" in alone.sources["levels.0"]
    assert alone.world_size == 1


def test_levels_have_the_names_and_the_place_of_the_node_that_were_found() -> None:
    found = Structure(
        sizes=(2, 2, 2), names=("package", "node", "cluster"), node_level=1, decided="inside by nvidia-smi topo -m"
    )
    profile = fit(measured(ALL_KINDS, structure=found))
    assert [level.name for level in profile.levels] == ["package", "node", "cluster"]
    assert profile.ranks_per_node == 4
    assert profile.sources["levels.0.size"] == "inside by nvidia-smi topo -m"


def test_mfu_is_relative_to_the_vendors_peak_where_it_is_known() -> None:
    measurement = measured(ALL_KINDS)
    assert fit(measurement, {"fp32": 2e10}).known_device.peak_flop_per_s == {"fp32": 2e10}
    assert "MFU is relative to it" in fit(measurement).sources["device.peak_flop_per_s"]


def test_numbers_have_four_digits() -> None:
    device = fit(measured(())).known_device
    assert device.matmul_flop_per_s["fp32"] == 12350000000.0
    assert device.attention_flop_per_s["fp32"] == 2346000000.0


def test_the_same_measurement_gives_the_same_profile() -> None:
    text = fitted().model_dump_json()
    assert fit(Measurement.model_validate_json(measured(ALL_KINDS).model_dump_json())).model_dump_json() == text


def test_a_curve_without_oddities_is_not_warned_of() -> None:
    assert fitted().warnings == ()


def test_mixed_devices_are_named_with_their_ranks() -> None:
    devices = ("A", "A", "B", "A", "A", "A", "A", "B")
    profile = fit(measured(ALL_KINDS, devices=devices, memory_bytes_by_device={"A": 80 << 30, "B": 40 << 30}))
    assert profile.device.name == "A + B"
    assert "A (80 GiB) on ranks 0-1, 3-6; B (40 GiB) on ranks 2, 7" in profile.warnings[0]


def test_a_curve_that_falls_is_named_with_its_sizes() -> None:
    points = ((1 << 10, 1e-3), (1 << 12, 0.95e-3), (1 << 14, 0.5e-3), (1 << 16, 1e-3))
    falling = Curve(
        operation="all_gather",
        degree_from=1,
        degree_to=4,
        points=tuple(CurvePoint(bytes=size, seconds=seconds) for size, seconds in points),
    )
    (warning,) = fit(measured((), curves=(falling,))).warnings
    assert "all_gather between 1 and 4: 16 KiB take 0.5 ms, 47% less than 4 KiB" in warning


def test_noisy_points_are_counted_and_the_worst_is_named() -> None:
    points = tuple(
        CurvePoint(bytes=1 << power, seconds=power / 1e3, repetitions=9, spread=spread)
        for power, spread in ((10, 0.1), (12, 0.6), (14, 0.9))
    )
    noisy = Curve(operation="reduce", degree_from=1, degree_to=4, points=points)
    (warning,) = fit(measured((), curves=(noisy,))).warnings
    assert "2 of 3 points are noisy" in warning
    assert "reduce between 1 and 4 at 16 KiB, 90%" in warning
