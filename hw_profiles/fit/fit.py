"""Makes a profile of a measurement: levels fitted to the curves, and where every number is from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hw_profiles.devices import Device, Host, Precision
from hw_profiles.fit.find_warnings import find_warnings
from hw_profiles.fit.fit_levels import Fitted, fit_levels
from hw_profiles.measure.measurement import Measurement
from hw_profiles.run_by import GLOO, NCCL
from hw_profiles.schema import Curve, HardwareProfile, Level, Pair

_STARTUP_S = 1e-4
"""Of a level that no group crosses and no other level tells of: a slow host's message between processes."""


def fit(measurement: Measurement, vendor_peak: Mapping[Precision, float] | None = None) -> HardwareProfile:
    """Returns the profile of the measured machine, with the raw points as curves.

    A level whose links the measured ranks do not have takes the numbers of the nearest level that they have, and its
    source says so.

    Args:
        measurement: what the ranks measured together.
        vendor_peak: dense peak FLOP/s by precision, for MFU; None takes the measured rates.
    """
    structure, curves = measurement.structure, tuple(_rounded_curve(curve) for curve in measurement.curves)
    algorithms = GLOO if measurement.kind == "cpu" else NCCL
    fitted = fit_levels(_bare_levels(measurement), curves, algorithms)
    name = "local-cpu" if measurement.logical else _slug(measurement)
    return HardwareProfile(
        name=name,
        description=f"{_device_name(measurement)}, measured as {measurement.num_nodes} x {measurement.ranks_per_node}",
        device=_device(measurement, vendor_peak),
        host=Host(
            memory_bytes=measurement.host_memory_bytes,
            link_bytes_per_s=_rounded(measurement.link_bytes_per_s),
            num_cores=measurement.num_cores,
        ),
        levels=_with_derived(fitted, measurement),
        node_level=structure.node_level,
        logical=measurement.logical,
        transport=measurement.transport,
        algorithms=algorithms,
        calls_s=fitted.calls_s,
        startups_hidden=fitted.startups_hidden,
        curves=curves,
        pairs=tuple(_rounded_pair(pair) for pair in measurement.pairs),
        links=measurement.links,
        warnings=(*measurement.warnings, *find_warnings(measurement)),
        sources=_sources(measurement, vendor_peak is not None, fitted),
    )


def _device_name(measurement: Measurement) -> str:
    return " + ".join(sorted(set(measurement.devices)))


def _slug(measurement: Measurement) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", _device_name(measurement).lower()).strip("-")
    return f"{name}-{measurement.num_nodes}x{measurement.ranks_per_node}"


def _device(measurement: Measurement, vendor_peak: Mapping[Precision, float] | None) -> Device:
    reached = {precision: _rounded(rate) for precision, rate in measurement.matmul_flop_per_s.items()}
    peak = reached
    if vendor_peak is not None:
        peak = {precision: vendor_peak.get(precision, rate) for precision, rate in reached.items()}
    return Device(
        name=_device_name(measurement),
        kind=measurement.kind,
        memory_bytes=measurement.memory_bytes,
        reserved_bytes=min(measurement.reserved_bytes, measurement.memory_bytes - 1),
        peak_flop_per_s=peak,
        matmul_flop_per_s=reached,
        attention_flop_per_s={key: _rounded(rate) for key, rate in measurement.attention_flop_per_s.items()},
        memory_bytes_per_s=_rounded(measurement.memory_bytes_per_s),
        operator_launch_s=_rounded(measurement.operator_launch_s),
        overlap=_rounded(measurement.overlap),
    )


def _bare_levels(measurement: Measurement) -> tuple[Level, ...]:
    """Returns the levels with the numbers that stay where nothing was measured: no rank has anything to send."""
    # A message between processes is copied in and out at least once each.
    speed = _rounded(measurement.memory_bytes_per_s / 4)
    structure = measurement.structure
    return tuple(
        Level(name=name, size=size, unit_bytes_per_s=speed, alpha_s=_STARTUP_S)
        for name, size in zip(structure.names, structure.sizes, strict=True)
    )


def _with_derived(fitted: Fitted, measurement: Measurement) -> tuple[Level, ...]:
    """Returns the levels, those that no curve tells of by the nearest that one does: as much for each rank."""
    ranks = (1, *measurement.structure.edges)
    levels = []
    for index, (level, is_told) in enumerate(zip(fitted.levels, fitted.told, strict=True)):
        nearest = _nearest_told(fitted.told, index)
        if is_told or nearest is None:
            levels.append(level)
            continue
        other = fitted.levels[nearest]
        # Outer levels have the links of all ranks of a unit; inner ones at least those of the outer's.
        per_unit = other.unit_bytes_per_s * max(ranks[index] / ranks[nearest], 1)
        numbers = {**other.model_dump(exclude={"name", "size"}), "unit_bytes_per_s": per_unit}
        levels.append(level.model_copy(update=numbers))
    return tuple(_rounded_level(level) for level in levels)


def _nearest_told(told: Sequence[bool], index: int) -> int | None:
    """Returns the nearest level that curves tell of, the inner one of two as near."""
    known = [other for other, is_told in enumerate(told) if is_told]
    return min(known, key=lambda other: (abs(other - index), other), default=None)


def _sources(measurement: Measurement, has_peak: bool, fitted: Fitted) -> dict[str, str]:
    how = f"measured {measurement.how}, {measurement.transport}"
    structure = measurement.structure
    alone = (
        "no group of the measured ranks crosses it: derived, a fourth of the memory's copying speed, 0.1 ms to start"
    )
    sources = {
        "device": f"{how}; all ranks at once, the slowest counts",
        "device.attention_flop_per_s": f"{how}; causal, counted as if every token saw every other; the slowest rank",
        "device.memory_bytes": f"{how}; a CPU rank's share of the host's memory",
        "device.reserved_bytes": f"{how}; what no tensor can have: the process itself, others on the host, the driver",
        "device.peak_flop_per_s": "vendor's datasheet, by a shipped profile of the same device"
        if has_peak
        else f"{how}; no vendor's peak is known, so the rate of large products: MFU is relative to it",
        "device.overlap": f"{how}; an all-reduce over all ranks beside products that take as long"
        if measurement.kind == "cpu"
        else "derived: devices have copy engines, and streams for messages",
        "host": how,
        "calls_s": f"{how}; fitted with the levels",
        "startups_hidden": f"{how}; fitted with the levels, the best of a few parts from 0 to 1",
        "curves": f"{how}; means of the middle half, all groups of a kind at once",
    }
    for index, is_told in enumerate(fitted.told):
        nearest = _nearest_told(fitted.told, index)
        numbers = (
            f"{how}; fitted to the curves, which the fit gives back within {fitted.median_error:.1%} (median)"
            if is_told
            else alone
            if nearest is None
            else f"no group of the measured ranks crosses it: derived from the level {structure.names[nearest]}"
        )
        sources[f"levels.{index}"] = numbers
        sources[f"levels.{index}.size"] = structure.decided
    if measurement.pairs:
        sources["pairs"] = f"{how}; one pair at a time, least of three large messages, median of small ones"
    if measurement.links:
        sources["links"] = measurement.links_source
    return sources


def _rounded_level(level: Level) -> Level:
    numbers = {
        "unit_bytes_per_s": _rounded(level.unit_bytes_per_s),
        "alpha_s": _rounded(level.alpha_s),
        "efficiency": {operation: _rounded(part) for operation, part in level.efficiency.items()},
        "startup": {operation: _rounded(part) for operation, part in level.startup.items()},
    }
    return level.model_copy(update=numbers)


def _rounded_curve(curve: Curve) -> Curve:
    points = tuple(
        point.model_copy(
            update={
                "seconds": _rounded(point.seconds),
                "spread": None if point.spread is None else _rounded(point.spread),
            }
        )
        for point in curve.points
    )
    return curve.model_copy(update={"points": points})


def _rounded_pair(pair: Pair) -> Pair:
    return pair.model_copy(update={"bytes_per_s": _rounded(pair.bytes_per_s), "latency_s": _rounded(pair.latency_s)})


def _rounded(value: float) -> float:
    """Four digits: more would be noise."""
    return float(f"{value:.4g}")
