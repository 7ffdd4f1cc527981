"""What a profile knows, as tables: its device, its levels and how each is known, and the collectives measured on it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hw_profiles.devices import Device
from hw_profiles.errors import ProfileError
from hw_profiles.schema import Curve, HardwareProfile, Pair
from planner.report.figures import bytes_text, flop_text, seconds_text
from planner.report.names import operation_text

_PRECISIONS = ("bf16", "fp16", "fp32")
_OVER = 1.005
"""Shares above this are shown as more than 100 %."""


def gigabytes_text(bytes_per_s: float) -> str:
    """Returns GB/s without the unit: `900`, `25.0`, `1.50`, `0.0243`."""
    value = bytes_per_s / 1e9
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:#.3g}"


def device_table(device: Device) -> RenderableType:
    """Returns a line per figure of the device."""
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column()
    for name, reached in (("matmul", device.matmul_flop_per_s), ("attention", device.attention_flop_per_s)):
        for precision in _PRECISIONS:
            if precision in reached:
                lines.add_row(f"  {name} {precision}", f"{flop_text(reached[precision])}/s")
    lines.add_row("  memory", f"{gigabytes_text(device.memory_bytes_per_s)} GB/s")
    lines.add_row("  reserved", bytes_text(device.reserved_bytes))
    lines.add_row("  per operator", seconds_text(device.operator_launch_s))
    return lines


def levels_table(profile: HardwareProfile) -> RenderableType:
    """Returns a row per level, inner first, with what single pairs reached, and below it how each level is known."""
    pairs = [_between(profile, number) for number in range(len(profile.levels))]
    if any(pairs):
        table = _table("level", "size", "GB/s into\none unit", "start-up", "one pair,\nGB/s", "its\nlatency")
    else:
        table = _table("level", "size", "GB/s into one unit", "start-up")
    for level, own in zip(profile.levels, pairs, strict=True):
        reached = [
            _range([gigabytes_text(pair.bytes_per_s) for pair in sorted(own, key=lambda each: each.bytes_per_s)])
        ]
        reached += [_range([seconds_text(pair.latency_s) for pair in sorted(own, key=lambda each: each.latency_s)])]
        table.add_row(
            level.name,
            str(level.size),
            gigabytes_text(level.unit_bytes_per_s),
            seconds_text(level.alpha_s),
            *(reached if any(pairs) else []),
        )
    return Group(table, Text(), _known_by(profile))


def _between(profile: HardwareProfile, number: int) -> list[Pair]:
    """Returns the pairs whose ranks this level joins: of one unit above it, and of two units of it."""
    unit = 1
    for level in profile.levels[:number]:
        unit *= level.size
    above = unit * profile.levels[number].size
    return [
        pair
        for pair in profile.pairs
        if pair.source // above == pair.target // above and pair.source // unit != pair.target // unit
    ]


def _range(texts: Sequence[str]) -> str:
    if not texts:
        return "-"
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _known_by(profile: HardwareProfile) -> RenderableType:
    """Returns a line per source with the levels whose bandwidth is from there."""
    levels_of: dict[str, list[str]] = {}
    for number, level in enumerate(profile.levels):
        parts = f"levels.{number}.unit_bytes_per_s".split(".")
        paths = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        source = next(profile.sources[path] for path in paths if path in profile.sources)
        levels_of.setdefault(source, []).append(level.name)
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(style="dim")
    for source, names in levels_of.items():
        lines.add_row(", ".join(names), source)
    return lines


def collectives_table(profile: HardwareProfile) -> RenderableType:
    """Returns a row per measured collective; where the wires are known, with what part of them its groups reach."""
    try:
        shares = _shares(profile)
    except ProfileError as error:
        return Group(_curves(profile.curves, ()), Text(f"The links say nothing: {error}", style="yellow"))
    notes = _notes(profile, shares)
    return Group(_curves(profile.curves, shares), *notes)


def _shares(profile: HardwareProfile) -> tuple[float | None, ...]:
    """Returns the share of the wires per curve, none at all where no curve has one."""
    if not profile.links:
        return ()
    from hw_profiles.links.share_of_wires import share_of_wires  # loads the solver

    shares = tuple(share_of_wires(profile, curve) for curve in profile.curves)
    return shares if any(share is not None for share in shares) else ()


def _curves(curves: Sequence[Curve], shares: Sequence[float | None]) -> Table:
    table = _table("collective", "small", "large", "takes", "GB/s", *(["of the\nwires"] if shares else []))
    for number, curve in enumerate(curves):
        first, last = curve.points[0], curve.points[-1]
        table.add_row(
            operation_text(curve.operation, curve.degree_from, curve.degree_to),
            seconds_text(first.seconds),
            bytes_text(last.bytes),
            seconds_text(last.seconds),
            gigabytes_text(last.bytes / last.seconds),
            *([_percent(shares[number])] if shares else []),
        )
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"


def _notes(profile: HardwareProfile, shares: Sequence[float | None]) -> list[Text]:
    if not shares:
        return []
    notes = [Text("of the wires: what they allow at best for the large message, over what it takes", style="dim")]
    over = [
        curve.operation
        for curve, share in zip(profile.curves, shares, strict=True)
        if share is not None and share > _OVER
    ]
    ranks = {str(rank) for rank in range(profile.ranks_per_node)}
    has_switches = any(not {link.source, link.target} <= ranks for link in profile.links)
    if any(operation != "all_reduce" or not has_switches for operation in over):
        notes.append(Text("More than 100% cannot be: the table of links is not that of this machine", style="yellow"))
    elif over:
        notes.append(Text("An all-reduce above 100% is summed in a switch (NVLink SHARP)", style="dim"))
    return notes


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(names):
        table.add_column(name, no_wrap=index > 0, justify="left" if index == 0 else "right", vertical="bottom")
    return table
