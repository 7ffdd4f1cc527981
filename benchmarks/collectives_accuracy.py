"""How well a measured profile tells the time of collectives that it has not measured, on an emulated cluster.

Needs root, `ip` and `tc`, and a machine with nothing else to do; 2 x 2 takes 15 minutes, 4 x 2 takes 30:

    .venv/bin/python benchmarks/collectives_accuracy.py --keep build/collectives --out docs/collectives_accuracy.md

`--again FOLDER` in place of `--keep` compares anew what was kept, after the model has changed; what the page shows is
in `benchmarks/kept/collectives`.

Nodes are network namespaces with links of two speeds. `shardplan profile` measures them under torchrun; then, on the
same cluster, collectives are timed afresh at sizes that the profile has no point of. Predicted against measured:

- sizes left out: the profile as it is, so that curves are interpolated;
- shapes left out: for each kind of group, the profile without its curves, fitted anew to the others, so that its time
  is modelled. The one kind that spans the node alone is not left out: without it, no curve is of the node's links.

Every collective is timed twice, in two launches. Measured is the mean of both; what the second says against the first
is as well as any could tell.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import math
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulated_cluster import EmulatedCluster, emulated_cluster

from costmodels.collectives import collective_time
from costmodels.degrees import legal_degrees, nested_pairs
from costmodels.engine import Operation
from costmodels.geometry import geometry
from costmodels.network import Provenance
from hw_profiles.fit.refit import refit
from hw_profiles.load import read_profile
from hw_profiles.save import save
from hw_profiles.schema import HardwareProfile
from planner.machine import machine

SIZES_BYTES = tuple(sorted([*(3 << power for power in range(12, 18)), *(5 << power for power in (13, 14, 15, 17))]))
"""12 KiB to 640 KiB, none of which is a power of two, as a profile's sizes are."""
INSIDE_MBIT, BETWEEN_MBIT = 100, 25
"""Slow beside 8 ranks that wait for 2 cores: the start-up of a small collective differs by a fifth from one launch to
the next there, and is what a message of 24 KiB and more should not consist of."""
_HERE = Path(__file__).parent
Kind = tuple[int, int]
Fresh = tuple[dict[str, Any], dict[str, Any]]
"""One collective as `time_messages.py` writes it, of the first and of the second launch."""


@dataclass(frozen=True, slots=True)
class Row:
    """One collective, predicted and measured."""

    left_out: str
    """`size` or `shape`."""
    operation: Operation
    kind: Kind
    message_bytes: int
    first_s: float
    again_s: float
    """What a second launch measured."""
    predicted_s: float
    provenance: Provenance

    @property
    def measured_s(self) -> float:
        """Geometric mean of both launches."""
        return math.sqrt(self.first_s * self.again_s)

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_s / self.measured_s - 1

    @property
    def repeat_error(self) -> float:
        """Measured again over measured first, less one."""
        return self.again_s / self.first_s - 1


@dataclass(frozen=True, slots=True)
class Kept:
    """What was measured on one cluster."""

    day: str
    cluster: EmulatedCluster
    profile: HardwareProfile
    fresh: list[Fresh]


def profile_of(cluster: EmulatedCluster, quick: bool = False) -> HardwareProfile:
    """Returns what `shardplan profile` measures on the cluster."""
    command = Path(sys.executable).with_name("shardplan")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "profile.json")
        arguments = ["--no-python", str(command), "profile", "--out", str(out), *(("--quick",) if quick else ())]
        cluster.run(arguments, timeout_s=3600)
        return read_profile(out)


def time_afresh(cluster: EmulatedCluster, profile: HardwareProfile, sizes_bytes: Sequence[int]) -> list[Fresh]:
    """Times every operation over every kind of group, in two launches."""
    kinds = nested_pairs(legal_degrees([level.size for level in profile.levels]))
    return list(zip(_timed(cluster, kinds, sizes_bytes), _timed(cluster, kinds, sizes_bytes), strict=True))


def compared(profile: HardwareProfile, fresh: Sequence[Fresh]) -> list[Row]:
    """Returns what was timed afresh beside what the profile says, with sizes and with shapes left out."""
    sizes = tuple(level.size for level in profile.levels)
    kinds = nested_pairs(legal_degrees(sizes))
    rows = [row for kind in kinds for row in _rows("size", profile, kind, fresh)]
    outermost = {kind: geometry(sizes, *kind)[-1].level for kind in kinds}
    for kind in kinds:
        if any(other != kind and level == outermost[kind] for other, level in outermost.items()):
            others = [curve for curve in profile.curves if (curve.degree_from, curve.degree_to) != kind]
            rows += _rows("shape", refit(profile, others), kind, fresh)
    return rows


def _timed(cluster: EmulatedCluster, kinds: Sequence[Kind], sizes_bytes: Sequence[int]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "fresh.json")
        asked = ["--kinds", *(f"{a},{b}" for a, b in kinds), "--sizes", *(str(size) for size in sizes_bytes)]
        cluster.run([str(_HERE / "time_messages.py"), str(out), *asked], timeout_s=3600)
        found: list[dict[str, Any]] = json.loads(out.read_text())
    return found


def _rows(left_out: str, profile: HardwareProfile, kind: Kind, fresh: Sequence[Fresh]) -> list[Row]:
    network = machine(profile, "fp32").network
    rows = []
    for first, second in fresh:
        if (first["degree_from"], first["degree_to"]) == kind:
            time = collective_time(first["operation"], *kind, first["bytes"], network)
            seconds = (first["seconds"], second["seconds"], time.seconds)
            rows.append(Row(left_out, first["operation"], kind, first["bytes"], *seconds, time.provenance))
    return rows


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the least of `values` that at least `part` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -int(-part * len(ordered) // 1) - 1)]


def cells(rows: Sequence[Row]) -> dict[tuple[Operation, Kind], list[Row]]:
    """Returns the rows of each operation and kind of group."""
    found: dict[tuple[Operation, Kind], list[Row]] = {}
    for row in rows:
        found.setdefault((row.operation, row.kind), []).append(row)
    return found


def speeds(cluster: EmulatedCluster, profile: HardwareProfile) -> list[tuple[str, float, float]]:
    """Returns for each level its name, the speed that was set, and the one that was found, in bytes per second."""
    was_set = [cluster.inside_bytes_per_s, cluster.between_bytes_per_s]
    if cluster.num_racks > 1:
        was_set.append(cluster.racks_bytes_per_s)
    return [(level.name, each, level.unit_bytes_per_s) for level, each in zip(profile.levels, was_set, strict=True)]


def page(found: Sequence[Kept], command: str) -> str:
    """Returns the page of all clusters."""
    days = " and ".join(sorted({each.day for each in found}))
    lines = [
        "# Collectives, predicted and measured",
        "",
        f"Written by `{command}`; measured on {days}, on {os.cpu_count()} cores of {platform.machine()}. Nodes are",
        "network namespaces with 2 ranks each; all ranks, gloo and the shaped links share these cores. The profile was",
        "measured by `shardplan profile` under torchrun, the rest in launches of its own. Errors are",
        "|predicted / measured - 1| over the sizes of each section;",
        "again: |measured once more / measured first - 1|, which no prediction can be expected to beat.",
        "",
    ]
    for each in found:
        # As the present code fits what was measured.
        profile = refit(each.profile, each.profile.curves)
        lines += _section(each.cluster, profile, compared(profile, each.fresh))
    return "\n".join(lines)


def _section(cluster: EmulatedCluster, profile: HardwareProfile, rows: Sequence[Row]) -> list[str]:
    sizes = " x ".join(str(level.size) for level in profile.levels)
    kib = ", ".join(f"{size >> 10}" for size in sorted({row.message_bytes for row in rows}))
    lines = [
        f"## {len(cluster.names)} nodes of {cluster.ranks_per_node} ranks",
        "",
        f"Levels found: {sizes}. Messages of {kib} KiB.",
        "",
    ]
    lines += ["| level | set, MB/s | found, MB/s | |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {was_set / 1e6:.1f} | {seen / 1e6:.1f} | {seen / was_set - 1:+.1%} |"
        for name, was_set, seen in speeds(cluster, profile)
    ]
    for left_out in ("size", "shape"):
        own = [row for row in rows if row.left_out == left_out]
        known = ", ".join(sorted({row.provenance for row in own}))
        lines += [
            "",
            f"### {left_out.capitalize()}s left out ({known})",
            "",
            "| operation | groups | median | 90 % | again: median | 90 % |",
            "|---|---|---:|---:|---:|---:|",
            *(
                f"| {operation} | {kind[0]} to {kind[1]} | {_figures(of_cell)} |"
                for (operation, kind), of_cell in cells(own).items()
            ),
            f"| all | | {_figures(own)} |",
        ]
    return [*lines, ""]


def _figures(rows: Sequence[Row]) -> str:
    figures = []
    for errors in ([abs(row.error) for row in rows], [abs(row.repeat_error) for row in rows]):
        figures += [f"{statistics.median(errors):.1%}", f"{quantile(errors, 0.9):.1%}"]
    return " | ".join(figures)


def main() -> None:
    """Measures the clusters asked for, or takes what was kept, and writes or prints the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder to keep what was measured in")
    parser.add_argument("--again", type=Path, help="a folder with what was kept, in place of measuring")
    given = parser.parse_args()
    found = [_kept(given.again, number) if given.again else _measured(number, given.keep) for number in given.nodes]
    text = page(found, " ".join(["python", *sys.argv]))
    if given.out:
        given.out.write_text(text)
    else:
        print(text)


def _measured(num_nodes: int, keep: Path | None) -> Kept:
    with emulated_cluster(num_nodes, 2, INSIDE_MBIT, BETWEEN_MBIT) as cluster:
        profile = profile_of(cluster)
        fresh = time_afresh(cluster, profile, SIZES_BYTES)
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        content = {"day": day, "cluster": dataclasses.asdict(cluster), "fresh": fresh}
        (keep / f"{num_nodes}_nodes.json").write_text(json.dumps(content))
        save(profile, keep / f"{num_nodes}_nodes_profile.json")
    return Kept(day, cluster, profile, fresh)


def _kept(folder: Path, num_nodes: int) -> Kept:
    content = json.loads((folder / f"{num_nodes}_nodes.json").read_text())
    cluster = EmulatedCluster(**content["cluster"])
    profile = read_profile(folder / f"{num_nodes}_nodes_profile.json")
    return Kept(content["day"], cluster, profile, [(first, second) for first, second in content["fresh"]])


if __name__ == "__main__":
    main()
