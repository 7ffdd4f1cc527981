"""How well a measured profile tells the time of collectives that it has not measured, on an emulated cluster.

Needs root, `ip` and `tc`, and a machine with nothing else to do; 2 x 2 takes about 5 minutes, 4 x 2 about 15:

    .venv/bin/python benchmarks/collectives_accuracy.py --nodes 2 4 --out docs/collectives_accuracy.md

Nodes are network namespaces with links of two speeds. `shardplan profile` measures them under torchrun; then, on the
same cluster, collectives are timed afresh at sizes that the profile has no point of. Predicted against measured:

- sizes left out: the profile as it is, so that curves are interpolated;
- shapes left out: for each kind of group, the profile without its curves, fitted anew to the others, so that its time
  is modelled. A kind that alone spans a level alone is not left out: without it, the level is not measured at all.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emulated_cluster import EmulatedCluster, emulated_cluster

from costmodels.collectives import collective_time
from costmodels.engine import Operation
from costmodels.geometry import geometry
from costmodels.network import Provenance
from hw_profiles.degrees import legal_degrees, nested_pairs
from hw_profiles.fit.refit import refit
from hw_profiles.load import read_profile
from hw_profiles.schema import HardwareProfile
from planner.machine import machine

SIZES_BYTES = tuple(3 << power for power in range(12, 21, 2))
"""12 KiB to 3 MiB, none of which is a power of two, as a profile's sizes are."""
_HERE = Path(__file__).parent
Kind = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One collective, predicted and measured."""

    left_out: str
    """`size` or `shape`."""
    operation: Operation
    kind: Kind
    message_bytes: int
    measured_s: float
    predicted_s: float
    provenance: Provenance

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted_s / self.measured_s - 1


def profile_of(cluster: EmulatedCluster, quick: bool = False) -> HardwareProfile:
    """Returns what `shardplan profile` measures on the cluster."""
    command = Path(sys.executable).with_name("shardplan")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "profile.json")
        arguments = ["--no-python", str(command), "profile", "--out", str(out), *(("--quick",) if quick else ())]
        cluster.run(arguments, timeout_s=3600)
        return read_profile(out)


def compared(cluster: EmulatedCluster, profile: HardwareProfile, sizes_bytes: Sequence[int]) -> list[Row]:
    """Times everything afresh and returns it beside what the profile says, with sizes and with shapes left out."""
    sizes = tuple(level.size for level in profile.levels)
    kinds = nested_pairs(legal_degrees(sizes))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "fresh.json")
        asked = ["--kinds", *(f"{a},{b}" for a, b in kinds), "--sizes", *(str(size) for size in sizes_bytes)]
        cluster.run([str(_HERE / "time_messages.py"), str(out), *asked], timeout_s=3600)
        fresh = json.loads(out.read_text())
    rows = [row for kind in kinds for row in _rows("size", profile, kind, fresh)]
    for kind in kinds:
        others = [curve for curve in profile.curves if (curve.degree_from, curve.degree_to) != kind]
        spanned = {geometry(sizes, *other) for other in kinds if other != kind}
        own = geometry(sizes, *kind)
        if len(own) > 1 or any(len(each) == 1 and each[0].level == own[0].level for each in spanned):
            rows += _rows("shape", refit(profile, others), kind, fresh)
    return rows


def _rows(left_out: str, profile: HardwareProfile, kind: Kind, fresh: list[dict[str, object]]) -> list[Row]:
    network = machine(profile, "fp32").network
    rows = []
    for each in fresh:
        if (each["degree_from"], each["degree_to"]) == kind:
            time = collective_time(each["operation"], *kind, each["bytes"], network)
            figures = (each["bytes"], each["seconds"], time.seconds, time.provenance)
            rows.append(Row(left_out, each["operation"], kind, *figures))
    return rows


def quantile(values: Sequence[float], part: float) -> float:
    """Returns the least of `values` that at least `part` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -int(-part * len(ordered) // 1) - 1)]


def summary(rows: Sequence[Row]) -> list[tuple[str, Operation, Kind, float, float, float]]:
    """Returns for each operation and kind of group: median, 90th percentile and worst of the errors' sizes."""
    cells: dict[tuple[str, Operation, Kind], list[float]] = {}
    for row in rows:
        cells.setdefault((row.left_out, row.operation, row.kind), []).append(abs(row.error))
    return [(*cell, statistics.median(errors), quantile(errors, 0.9), max(errors)) for cell, errors in cells.items()]


def speeds(cluster: EmulatedCluster, profile: HardwareProfile) -> list[tuple[str, float, float]]:
    """Returns for each level its name, the speed that was set, and the one that was found, in bytes per second."""
    was_set = (cluster.inside_bytes_per_s, cluster.between_bytes_per_s)
    return [(level.name, each, level.unit_bytes_per_s) for level, each in zip(profile.levels, was_set, strict=True)]


def page(found: Sequence[tuple[EmulatedCluster, HardwareProfile, Sequence[Row]]], command: str) -> str:
    """Returns the page of all clusters."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    lines = [
        "# Collectives, predicted and measured",
        "",
        f"Written on {today} by `{command}`, on {os.cpu_count()} cores of {platform.machine()}. Nodes are network",
        "namespaces with 2 ranks each; all ranks, gloo and the shaped links share these cores. The profile was",
        "measured by `shardplan profile` under torchrun, the rest afterwards on the same cluster. Errors are",
        "|predicted / measured - 1| over the sizes " + ", ".join(f"{size >> 10} KiB" for size in SIZES_BYTES) + ".",
        "",
    ]
    for cluster, profile, rows in found:
        lines += _section(cluster, profile, rows)
    return "\n".join(lines)


def _section(cluster: EmulatedCluster, profile: HardwareProfile, rows: Sequence[Row]) -> list[str]:
    sizes = " x ".join(str(level.size) for level in profile.levels)
    lines = [f"## {len(cluster.names)} nodes of {cluster.ranks_per_node} ranks", "", f"Levels found: {sizes}.", ""]
    lines += ["| level | set, MB/s | found, MB/s | |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {was_set / 1e6:.1f} | {seen / 1e6:.1f} | {seen / was_set - 1:+.1%} |"
        for name, was_set, seen in speeds(cluster, profile)
    ]
    for left_out in ("size", "shape"):
        own = [row for row in rows if row.left_out == left_out]
        errors = [abs(row.error) for row in own]
        known = ", ".join(sorted({row.provenance for row in own}))
        lines += [
            "",
            f"### {left_out.capitalize()}s left out ({known})",
            "",
            f"All {len(own)}: median {statistics.median(errors):.1%}, 90th percentile {quantile(errors, 0.9):.1%}.",
            "",
            "| operation | groups | median | 90 % | worst |",
            "|---|---|---:|---:|---:|",
        ]
        lines += [
            f"| {operation} | {kind[0]} to {kind[1]} | {middle:.1%} | {most:.1%} | {worst:.1%} |"
            for _, operation, kind, middle, most, worst in summary(own)
        ]
    return [*lines, ""]


def main() -> None:
    """Measures the clusters asked for and writes or prints the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for the profiles and the rows as JSON")
    given = parser.parse_args()
    found = []
    for num_nodes in given.nodes:
        with emulated_cluster(num_nodes, 2) as cluster:
            profile = profile_of(cluster, given.quick)
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                (given.keep / f"profile{num_nodes}.json").write_text(profile.model_dump_json(indent=1))
            rows = compared(cluster, profile, SIZES_BYTES)
            found.append((cluster, profile, rows))
            if given.keep:
                kept = [
                    (row.left_out, row.operation, row.kind, row.message_bytes, row.measured_s, row.predicted_s)
                    for row in rows
                ]
                (given.keep / f"rows{num_nodes}.json").write_text(json.dumps(kept))
    text = page(found, " ".join(["python", *sys.argv]))
    if given.out:
        given.out.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
