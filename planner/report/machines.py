"""Machines for people: the table of shipped profiles, and one profile with its levels and measured bandwidths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hw_profiles.schema import Curve, Device, HardwareProfile, Level
from planner.report.figures import bytes_text, flop_text, plural, seconds_text
from planner.report.names import operation_text


def machines_table(profiles: Sequence[HardwareProfile]) -> RenderableType:
    """Returns a row per machine: its device, and the bandwidth into one unit of each level, inner first."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("device", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("TFLOP/s", justify="right", no_wrap=True)
    table.add_column("levels", no_wrap=True)
    table.add_column("GB/s", justify="right", no_wrap=True)
    for profile in profiles:
        device = profile.known_device
        half = device.peak_flop_per_s.get("bf16") or device.peak_flop_per_s.get("fp16")
        table.add_row(
            profile.name,
            _model(device.name),
            f"{device.memory_bytes / 2**30:.3g} GiB",
            "-" if half is None else _tflop(half),
            "\n".join(_level(level) for level in profile.levels),
            "\n".join(_gigabytes(level.unit_bytes_per_s) for level in profile.levels),
        )
    note = (
        "TFLOP/s: dense, half precision. Levels: inner first, with the bandwidth into one unit. --nodes sets the last."
    )
    return Group(table, Text(f"\n{note}", style="dim"))


def _gigabytes(bytes_per_s: float) -> str:
    value = bytes_per_s / 1e9
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _tflop(flop_per_s: float) -> str:
    value = flop_per_s / 1e12
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _model(device_name: str) -> str:
    """Returns a device's name without the maker and the family that its model implies."""
    for words in ("NVIDIA ", "AMD Instinct ", "Tesla "):
        device_name = device_name.removeprefix(words)
    return device_name


def _level(level: Level) -> str:
    return level.name if level.size == 1 else f"{level.name} of {level.size}"


def profile_page(profile: HardwareProfile) -> RenderableType:
    """Returns a profile: its device, its levels, and the bandwidth of its largest measured messages."""
    device = profile.device
    memory = f", {bytes_text(device.memory_bytes)} per rank" if isinstance(device, Device) else ""
    title = Text(profile.name, style="bold green")
    title.append(
        f"  {plural(profile.world_size // profile.ranks_per_node, 'node')} × {plural(profile.ranks_per_node, 'rank')}, "
        f"{device.name}{memory}",
        style="not bold default",
    )
    parts: list[RenderableType] = [title]
    if isinstance(device, Device):
        parts += [Text("\nDevice", style="bold"), _device(device)]
    parts += [Text("\nLevels, inner first", style="bold"), _levels(profile.levels)]
    if profile.curves:
        parts += [Text("\nMeasured collectives", style="bold"), _curves(profile.curves)]
    return Group(*parts)


def _device(device: Device) -> RenderableType:
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    for precision in ("bf16", "fp16", "fp32"):
        if precision in device.matmul_flop_per_s:
            lines.add_row(f"  matmul {precision}", f"{flop_text(device.matmul_flop_per_s[precision])}/s")
    lines.add_row("  memory", f"{_gigabytes(device.memory_bytes_per_s)} GB/s")
    lines.add_row("  reserved", bytes_text(device.reserved_bytes))
    lines.add_row("  per operator", seconds_text(device.operator_launch_s))
    return lines


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(names):
        table.add_column(name, no_wrap=True, justify="left" if index == 0 else "right")
    return table


def _levels(levels: Sequence[Level]) -> RenderableType:
    table = _table("level", "size", "GB/s into one unit", "start-up")
    for level in levels:
        table.add_row(level.name, str(level.size), _gigabytes(level.unit_bytes_per_s), seconds_text(level.alpha_s))
    return table


def _curves(curves: Sequence[Curve]) -> RenderableType:
    table = _table("collective", "small", "large", "takes", "GB/s")
    for curve in curves:
        first, last = curve.points[0], curve.points[-1]
        table.add_row(
            operation_text(curve.operation, curve.degree_from, curve.degree_to),
            seconds_text(first.seconds),
            bytes_text(last.bytes),
            seconds_text(last.seconds),
            _gigabytes(last.bytes / last.seconds),
        )
    return table


def saved_to(path: Path | None, name: str) -> RenderableType:
    """Returns where the profile is, if it was kept, and how to plan on it by `name`."""
    if path is None:
        return Text("\nNot kept: --out FILE writes it, and `--hardware FILE` plans on it")
    return Text(f"\nWritten to {path}\nNext: shardplan plan MODEL --hardware {name} --global-batch-size B")
