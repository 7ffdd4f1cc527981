"""Writes the tables of docs/machines.md: shipped machines with their sources, published figures beside predicted ones.

.venv/bin/python docs/write_machines.py

What stands between two marks of the page is replaced; the text around them is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hw_profiles.load import load, read_profile, shipped_names
from hw_profiles.schema import HardwareProfile

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("machines.md")
SHIPPED = ROOT / "hw_profiles"
PUBLISHED = ROOT / "tests" / "published"


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """Returns the page, its marked parts as the profiles and the models give them now.

    Raises:
        ValueError: a part has no place in the page.
    """
    text = PAGE.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->\n)", re.DOTALL)
        found = pattern.search(text)
        if found is None:
            raise ValueError(f"{PAGE} has no place for {name}: <!-- {name} --> ... <!-- end -->")
        start, end = found.span(1)[1], found.span(2)[0]
        text = text[:start] + "\n".join(part()) + "\n" + text[end:]
    return text


def shipped_table() -> list[str]:
    """Returns a row per machine: device, levels inner first, what they carry."""
    rows = []
    for profile in _shipped():
        device = profile.known_device
        levels = "<br>".join(f"{level.name} of {level.size}" for level in profile.levels)
        carried = "<br>".join(f"{level.unit_bytes_per_s / 1e9:,.6g}" for level in profile.levels)
        half = device.peak_flop_per_s.get("bf16") or device.peak_flop_per_s["fp16"]
        rows.append(
            f"| `{profile.name}` | {profile.description} | {device.memory_bytes / 2**30:.3g} | {half / 1e12:,.4g} "
            f"| {levels} | {carried} |"
        )
    return [
        "| machine | what it is | GiB per rank | TFLOP/s, half precision | levels | GB/s into one unit |",
        "|---|---|---:|---:|---|---:|",
        *rows,
    ]


def sources() -> list[str]:
    """Returns a table per machine: each number with where it is from."""
    lines: list[str] = []
    for profile in _shipped():
        lines += [f"### {profile.name}", "", "| number | value | from |", "|---|---|---|"]
        content = profile.model_dump(mode="json")
        lines += [f"| {path} | {_value(content, path)} | {text} |" for path, text in profile.sources.items()]
        lines += [f"\n**Warning:** {text}" for text in profile.warnings] + [""]
    return lines[:-1]


def anchors() -> list[str]:
    """Returns published times and throughputs beside what the collective model gives for the shipped machines."""
    sys.path.append(str(PUBLISHED))
    from network_anchors import anchors as found

    return [
        "| run | figure | unit | published | predicted | error |",
        "|---|---|---|---:|---:|---:|",
        *(
            f"| {each.run} | {each.figure} | {each.unit} | {each.published:.4g} | {each.predicted:.4g} "
            f"| {each.error * 100:+.1f} % |"
            for each in found()
        ),
    ]


def bus_bandwidths() -> list[str]:
    """Returns published bus bandwidths beside the model's."""
    sys.path.append(str(PUBLISHED))
    from bus_bandwidths import rows

    return [
        "| machine | nodes | operation | ranks | message | GB/s published | predicted | error | published in |",
        "|---|---:|---|---:|---:|---:|---:|---:|---|",
        *(
            f"| {row.machine} | {row.num_nodes} | {row.operation.replace('_', '-')} "
            f"| {row.degree_to // row.degree_from} | {row.message_bytes / 2**30:g} GiB "
            f"| {row.published / 1e9:.4g} | {row.predicted / 1e9:.4g} "
            f"| {(row.predicted / row.published - 1) * 100:+.1f} % | {row.source} |"
            for row in rows()
        ),
    ]


def sizes() -> list[str]:
    """Returns published and predicted bus bandwidths of an all-reduce by its size."""
    sys.path.append(str(PUBLISHED))
    from bus_bandwidths import SWEPT, sweep

    swept = [sweep(name) for name in SWEPT]
    return [
        "| message | " + " | ".join(f"{name}: published | predicted | error" for name in SWEPT) + " |",
        "|---:|" + "---:|---:|---:|" * len(SWEPT),
        *(
            f"| {row[0].message_bytes / 2**20:g} MiB | "
            + " | ".join(
                f"{each.published / 1e9:.4g} | {each.predicted / 1e9:.4g} "
                f"| {(each.predicted / each.published - 1) * 100:+.0f} %"
                for each in row
            )
            + " |"
            for row in zip(*swept, strict=True)
        ),
    ]


PARTS: dict[str, Callable[[], list[str]]] = {
    "shipped machines": shipped_table,
    "sources": sources,
    "anchors": anchors,
    "bus bandwidths": bus_bandwidths,
    "sizes": sizes,
}


def _shipped() -> Iterator[HardwareProfile]:
    """Yields the files themselves: `load` would give a measured profile in place of local-cpu."""
    for name in shipped_names():
        profile = read_profile(SHIPPED / f"{name}.json")
        assert profile.logical or load(name) == profile
        yield profile


def _value(content: object, path: str) -> str:
    """Returns what stands at a dotted path, shortly."""
    for part in path.split("."):
        content = content[int(part)] if isinstance(content, list) else content[part]  # type: ignore[index]
    return _text(content)


def _text(content: object) -> str:
    if isinstance(content, dict):
        return ", ".join(f"{key} {_text(value)}" for key, value in content.items())
    if isinstance(content, list):
        return ", ".join(map(_text, content)) if len(content) <= 3 else f"{len(content)} entries"
    if isinstance(content, float):
        return f"{content:g}"
    return str(content)


if __name__ == "__main__":
    main()
