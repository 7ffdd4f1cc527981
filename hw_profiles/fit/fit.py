"""Fits a profile to a measurement: start-up and bandwidth of each level, and the part of it each operation reaches."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hw_profiles.measure.measurement import Measurement
from hw_profiles.schema import Curve, CurvePoint, Device, HardwareProfile, Host, Level, Operation, Precision

_MESSAGES_PER_HOP: dict[Operation, int] = {"all_reduce": 2}
"""Twice the bytes and start-ups of a reduce-scatter, which all others have at most."""
_WHOLE_MESSAGE: tuple[Operation, ...] = ("reduce", "broadcast")
"""Operations that pass all bytes into each unit; the others leave out what a unit has."""


def fit(measurement: Measurement, vendor_peak: Mapping[Precision, float] | None = None) -> HardwareProfile:
    """Returns the profile of the measured machine: two levels, `node` and `cluster`, with the raw points as curves.

    A level's bandwidth is the best that an operation reached over it, and the others' efficiency their part of that. A
    level whose links the measured ranks do not have takes the numbers of the other level, and the source says so.

    Args:
        measurement: what the ranks measured together.
        vendor_peak: dense peak FLOP/s by precision, for MFU; None takes the measured rates.
    """
    inside, across = (1, measurement.ranks_per_node), (measurement.ranks_per_node, _world_size(measurement))
    node = _level("node", inside, measurement)
    cluster = _level("cluster", across, measurement)
    logical = measurement.logical
    return HardwareProfile(
        name="local-cpu" if logical else _slug(measurement),
        description=f"{measurement.device_name}, measured as {measurement.num_nodes} x {measurement.ranks_per_node}",
        device=_device(measurement, vendor_peak),
        host=Host(
            memory_bytes=measurement.host_memory_bytes,
            link_bytes_per_s=_rounded(measurement.link_bytes_per_s),
            num_cores=measurement.num_cores,
        ),
        levels=(
            node or _unmeasured("node", inside, cluster, measurement),
            cluster or _unmeasured("cluster", across, node, measurement),
        ),
        node_level=0,
        logical=logical,
        curves=tuple(_rounded_curve(curve) for curve in measurement.curves),
        sources=_sources(measurement, vendor_peak is not None, node is not None, cluster is not None),
    )


def _world_size(measurement: Measurement) -> int:
    return measurement.num_nodes * measurement.ranks_per_node


def _slug(measurement: Measurement) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", measurement.device_name.lower()).strip("-")
    return f"{name}-{measurement.num_nodes}x{measurement.ranks_per_node}"


def _device(measurement: Measurement, vendor_peak: Mapping[Precision, float] | None) -> Device:
    reached = {precision: _rounded(rate) for precision, rate in measurement.matmul_flop_per_s.items()}
    peak = reached
    if vendor_peak is not None:
        peak = {precision: vendor_peak.get(precision, rate) for precision, rate in reached.items()}
    return Device(
        name=measurement.device_name,
        kind=measurement.kind,
        memory_bytes=measurement.memory_bytes,
        reserved_bytes=measurement.reserved_bytes,
        peak_flop_per_s=peak,
        matmul_flop_per_s=reached,
        memory_bytes_per_s=_rounded(measurement.memory_bytes_per_s),
        operator_launch_s=_rounded(measurement.operator_launch_s),
        overlap=0.0 if measurement.kind == "cpu" else 1.0,
    )


def _level(name: str, degrees: tuple[int, int], measurement: Measurement) -> Level | None:
    """Fits one level to the curves of the groups that have one rank in each of its units; None without any."""
    curves = [curve for curve in measurement.curves if (curve.degree_from, curve.degree_to) == degrees]
    if not curves:
        return None
    units = degrees[1] // degrees[0]
    reached = {curve.operation: _bytes_per_s(curve, units, degrees[0]) for curve in curves}
    best = max(reached.values())
    startup = min(_least_s(curve) / ((units - 1) * _MESSAGES_PER_HOP.get(curve.operation, 1)) for curve in curves)
    return Level(
        name=name,
        size=units,
        unit_bytes_per_s=_rounded(best),
        alpha_s=_rounded(startup),
        efficiency={operation: _rounded(rate / best) for operation, rate in reached.items()},
    )


def _bytes_per_s(curve: Curve, units: int, groups: int) -> float:
    """Returns the bytes per second that entered one unit, over all `groups` that share it, on the largest messages."""
    large = curve.points[-1]
    part = 1.0 if curve.operation in _WHOLE_MESSAGE else (units - 1) / units
    entering = groups * part * _MESSAGES_PER_HOP.get(curve.operation, 1) * large.bytes
    # Less the start-up, unless noise made some smaller message as slow as the large one.
    small_s = _least_s(curve)
    return entering / (large.seconds - small_s if large.seconds > small_s else large.seconds)


def _least_s(curve: Curve) -> float:
    """Returns the seconds of its fastest point: the smallest message's, but for what disturbed that one."""
    return min(point.seconds for point in curve.points)


def _unmeasured(name: str, degrees: tuple[int, int], other: Level | None, measurement: Measurement) -> Level:
    """Returns a level of one unit, whose links no measured group has."""
    size = degrees[1] // degrees[0]
    if other is not None:
        per_rank = other.unit_bytes_per_s * degrees[0] if name == "cluster" else other.unit_bytes_per_s
        return other.model_copy(update={"name": name, "size": size, "unit_bytes_per_s": per_rank})
    # A message between processes is copied in and out at least once each.
    return Level(name=name, size=size, unit_bytes_per_s=_rounded(measurement.memory_bytes_per_s / 4), alpha_s=1e-4)


def _sources(measurement: Measurement, has_peak: bool, has_node: bool, has_cluster: bool) -> dict[str, str]:
    how = f"measured {measurement.how}"
    other = "no group of the measured ranks crosses it: derived from the other level"
    alone = "a single rank was measured: derived, a fourth of the memory's copying speed, 0.1 ms per start-up"
    fitted = f"{how}; least start-up and best bandwidth over the operations"
    return {
        "device": f"{how}; all ranks at once, the slowest counts",
        "device.memory_bytes": f"{how}; a CPU rank's share of the host's memory",
        "device.reserved_bytes": f"{how}; resident before any tensor, or a device's context and communicators",
        "device.peak_flop_per_s": "vendor's datasheet, by a shipped profile of the same device"
        if has_peak
        else f"{how}; no vendor's peak is known, so the rate of large products: MFU is relative to it",
        "device.overlap": "derived: CPU ranks compute and communicate with the same cores, devices have copy engines",
        "host": how,
        "levels.0": fitted if has_node else (other if has_cluster else alone),
        "levels.1": fitted if has_cluster else (other if has_node else alone),
        "curves": f"{how}; medians, all groups of a kind at once",
    }


def _rounded_curve(curve: Curve) -> Curve:
    points = tuple(CurvePoint(bytes=point.bytes, seconds=_rounded(point.seconds)) for point in curve.points)
    return curve.model_copy(update={"points": points})


def _rounded(value: float) -> float:
    """Four digits: more would be noise."""
    return float(f"{value:.4g}")
