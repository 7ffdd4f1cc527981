"""Machines for people: the table of shipped profiles, and one profile with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hw_profiles.devices import Device
from hw_profiles.schema import HardwareProfile, Level
from planner.report.figures import bytes_text, plural
from planner.report.machine_tables import collectives_table, device_table, gigabytes_text, levels_table


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
            "\n".join(gigabytes_text(level.unit_bytes_per_s) for level in profile.levels),
        )
    note = (
        "TFLOP/s: dense, half precision. Levels: inner first, with the bandwidth into one unit. --nodes sets the last. "
        "`shardplan machines NAME` shows one, and where each figure is from."
    )
    return Group(table, Text(f"\n{note}", style="dim"))


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
    """Returns a profile: its device, its levels and how they are known, its measured collectives, and what was odd."""
    device = profile.device
    memory = f", {bytes_text(device.memory_bytes)} per rank" if isinstance(device, Device) else ""
    title = Text(profile.name, style="bold green")
    title.append(
        f"  {plural(profile.world_size // profile.ranks_per_node, 'node')} × {plural(profile.ranks_per_node, 'rank')}, "
        f"{device.name}{memory}",
        style="not bold default",
    )
    parts: list[RenderableType] = [title]
    if profile.transport:
        parts.append(Text(f"Messages by {profile.transport}"))
    if isinstance(device, Device):
        parts += [Text("\nDevice", style="bold"), device_table(device)]
    parts += [Text("\nLevels, inner first", style="bold"), levels_table(profile)]
    if profile.curves:
        parts += [Text("\nMeasured collectives", style="bold"), collectives_table(profile)]
    if profile.warnings:
        parts += [Text("\nWarnings", style="bold yellow"), _listed(profile.warnings)]
    return Group(*parts)


def sources_table(profile: HardwareProfile) -> RenderableType:
    """Returns where each figure is from."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("figure", no_wrap=True)
    table.add_column("source", style="dim")
    for path, source in profile.sources.items():
        table.add_row(path, source)
    return Group(Text("\nSources", style="bold"), table)


def _listed(texts: Sequence[str]) -> RenderableType:
    lines = Table.grid(padding=(0, 1))
    for text in texts:
        lines.add_row("  -", text)
    return lines


def saved_to(path: Path | None, name: str) -> RenderableType:
    """Returns where the profile is, if it was kept, and how to plan on it by `name`."""
    if path is None:
        return Text("\nNot kept: --out FILE writes it, and `--hardware FILE` plans on it")
    return Text(f"\nWritten to {path}\nNext: shardplan plan MODEL --hardware {name} --global-batch-size B")
