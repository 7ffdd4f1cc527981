"""A profile fitted to a measurement gives the measured numbers back."""

from __future__ import annotations

import pytest

from costmodels.collectives import level_loads, port_time
from costmodels.network import Network, NetworkLevel
from hw_profiles.fit.fit import fit
from hw_profiles.measure.measurement import Measurement
from hw_profiles.schema import Curve, CurvePoint, HardwareProfile, Operation

OPERATIONS: tuple[Operation, ...] = ("all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all")
TRUTH = Network(levels=(NetworkLevel(4, 10e9, 5e-6, (("all_reduce", 0.5),)), NetworkLevel(2, 2e9, 20e-6)))
LARGE_BYTES = 1 << 26


def measured(kinds: tuple[tuple[int, int], ...], num_nodes: int = 2, ranks_per_node: int = 4) -> Measurement:
    """What ranks would measure on a machine that is exactly the port model of TRUTH."""
    sizes_bytes = (8, 1 << 14, LARGE_BYTES)
    curves = tuple(
        Curve(
            operation=operation,
            degree_from=inner,
            degree_to=outer,
            points=tuple(
                CurvePoint(bytes=size_bytes, seconds=port_time(operation, inner, outer, size_bytes, TRUTH))
                for size_bytes in sizes_bytes
            ),
        )
        for inner, outer in kinds
        for operation in OPERATIONS
    )
    return Measurement(
        num_nodes=num_nodes,
        ranks_per_node=ranks_per_node,
        logical=True,
        kind="cpu",
        device_name="a CPU",
        memory_bytes=4 << 30,
        reserved_bytes=1 << 28,
        host_memory_bytes=32 << 30,
        num_cores=8,
        matmul_flop_per_s={"fp32": 12345678901.0},
        memory_bytes_per_s=8e9,
        link_bytes_per_s=4e9,
        operator_launch_s=4e-6,
        curves=curves,
        how="by hand",
    )


def network(profile: HardwareProfile) -> Network:
    return Network(
        tuple(
            NetworkLevel(level.size, level.unit_bytes_per_s, level.alpha_s, tuple(level.efficiency.items()))
            for level in profile.levels
        )
    )


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("inner", "outer"), [(1, 4), (4, 8), (1, 8)])
def test_the_port_model_of_a_fit_gives_the_measured_seconds_back(operation: Operation, inner: int, outer: int) -> None:
    fitted = network(fit(measured(((1, 4), (4, 8)))))
    for size_bytes in (1 << 20, LARGE_BYTES):
        truth_s = port_time(operation, inner, outer, size_bytes, TRUTH)
        assert port_time(operation, inner, outer, size_bytes, fitted) == pytest.approx(truth_s, rel=0.02)


def test_a_level_has_the_best_bandwidth_and_the_least_startup_of_its_operations() -> None:
    node, cluster = fit(measured(((1, 4), (4, 8)))).levels
    assert (node.name, node.size, cluster.name, cluster.size) == ("node", 4, "cluster", 2)
    assert node.unit_bytes_per_s == pytest.approx(10e9, rel=1e-3)
    assert cluster.unit_bytes_per_s == pytest.approx(2e9, rel=1e-3)
    assert node.efficiency["all_reduce"] == pytest.approx(0.5, rel=1e-3)
    assert (node.alpha_s, cluster.alpha_s) == (pytest.approx(5e-6, rel=1e-2), pytest.approx(20e-6, rel=1e-2))


def test_raw_points_stay_as_curves() -> None:
    measurement = measured(((1, 4), (4, 8)))
    profile = fit(measurement)
    assert [curve.operation for curve in profile.curves] == [curve.operation for curve in measurement.curves]
    assert profile.curves[0].points[-1].seconds == pytest.approx(measurement.curves[0].points[-1].seconds, rel=1e-3)


def test_a_level_that_was_not_measured_says_so() -> None:
    one_node = fit(measured(((1, 4),), num_nodes=1))
    assert "derived from the other level" in one_node.sources["levels.1"]
    assert "by hand" in one_node.sources["levels.0"]
    # A node of 4 ranks carries what its 4 ranks carry.
    assert one_node.levels[1].unit_bytes_per_s == 4 * one_node.levels[0].unit_bytes_per_s
    alone = fit(measured((), num_nodes=1, ranks_per_node=1))
    assert "single rank" in alone.sources["levels.0"]
    assert alone.world_size == 1


def test_mfu_is_relative_to_the_vendors_peak_where_it_is_known() -> None:
    measurement = measured(((1, 4), (4, 8)))
    assert fit(measurement, {"fp32": 2e10}).device.peak_flop_per_s == {"fp32": 2e10}
    assert "MFU is relative to it" in fit(measurement).sources["device.peak_flop_per_s"]


def test_numbers_have_four_digits() -> None:
    assert fit(measured(())).device.matmul_flop_per_s["fp32"] == 12350000000.0


def test_a_noisy_small_message_is_no_negative_bandwidth() -> None:
    measurement = measured(((1, 4),), num_nodes=1)
    slow = Curve(
        operation="all_gather",
        degree_from=1,
        degree_to=4,
        points=(CurvePoint(bytes=8, seconds=1.0), CurvePoint(bytes=LARGE_BYTES, seconds=0.5)),
    )
    noisy = fit(measurement.model_copy(update={"curves": (slow,)}))
    (load,) = level_loads("all_gather", 1, 4, LARGE_BYTES, TRUTH)
    assert noisy.levels[0].unit_bytes_per_s == pytest.approx(load.entering_bytes / 0.5, rel=1e-3)
