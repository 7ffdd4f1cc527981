"""Reads the output of nccl-tests or rccl-tests: the time of a collective by its size."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path

from hw_profiles.errors import ProfileError
from hw_profiles.read.collective_operation import operation_of, program_of
from hw_profiles.read.collective_ranks import read_placement
from hw_profiles.read.collective_rows import Row, Rows, looks_like_row, read_rows
from hw_profiles.read.collective_run import CollectiveRun
from hw_profiles.read.terminal_text import Line, read_lines
from hw_profiles.schema import CurvePoint, Operation

_FAILURE = re.compile(
    r"Test (?:NCCL|CUDA) failure|NCCL WARN|out of memory|Segmentation fault|exited on signal|not found"
)
_NETWORK = re.compile(r"(?:NCCL|RCCL) INFO Using network (.+?)\s*$")
_INTERFACES = re.compile(r"INFO NET/(\w+)\s*: Using (\[0\].+?)\s*(?:\[RO\].*|; OOB.*)?$")
_ITERATIONS = re.compile(r"(?<!warmup )iters: (\d+)")
_VERSION = re.compile(r"\b([NR]CCL) version (\d+\.\d+\.\d+)")


def read_collectives(
    path: Path, operation: Operation | None = None
) -> tuple[tuple[CollectiveRun, ...], tuple[str, ...]]:
    """Returns the runs in one output file, and what else people should know of it.

    Times are those of the out-of-place call: every version prints it for every operation, while some operations have no
    in-place call; where only the in-place one is there, it serves. Training calls both kinds, and they differ by less
    than two runs do.

    Args:
        path: the file.
        operation: what it is of, where the output does not say so.

    Raises:
        ProfileError: no such output, or one of which nothing can be used; says why, and what to try.
    """
    lines = read_lines(path)
    name = path.name
    runs: list[CollectiveRun] = []
    notes: list[str] = []
    sections = _sections(lines)
    if not sections:
        raise ProfileError(_nothing(lines, name), key="collectives")
    for section in sections:
        program, named = program_of(section)
        if program and named is None and operation is None:
            notes.append(f"{name}: {program} is of no collective that plans are made of; not used")
            continue
        runs.append(_run(section, name, operation or named))
    if not runs:
        raise ProfileError(
            f"{notes[0]}. Give runs of all_gather_perf, reduce_scatter_perf, all_reduce_perf, alltoall_perf, "
            "broadcast_perf or reduce_perf",
            key="program",
        )
    return tuple(runs), tuple(notes)


def _sections(lines: Sequence[Line]) -> tuple[tuple[Line, ...], ...]:
    """Splits a log where a program starts after rows of the one before; what has no rows is no run."""
    sections: list[list[Line]] = [[]]
    has_rows = False
    for line in lines:
        if has_rows and re.search(r"Collective test starting|\bnThread\b|\w_perf\s+-\w", line.text):
            sections.append([])
            has_rows = False
        has_rows = has_rows or looks_like_row(line.text)
        sections[-1].append(line)
    return tuple(tuple(section) for section in sections if any(looks_like_row(line.text) for line in section))


def _run(section: tuple[Line, ...], name: str, said: Operation | None) -> CollectiveRun:
    placement = read_placement(section, name)
    num_ranks = placement.degree_to // placement.degree_from
    if any(re.search(r"^#.*\bcputime\b", line.text) for line in section):
        raise ProfileError(f"{name}: the times are those of the CPU (-C 1), not of the collective; run it without -C")
    rows = read_rows(section, num_ranks)
    _check_rows(rows, num_ranks, name)
    operation, how = operation_of(rows.good, num_ranks, said, name)
    transport, over_sockets = _transport(section)
    return CollectiveRun(
        file=name,
        operation=operation,
        degree_from=placement.degree_from,
        degree_to=placement.degree_to,
        num_nodes=placement.num_nodes,
        ranks_per_node=placement.ranks_per_node,
        device_names=placement.device_names,
        points=_points(rows.good, section),
        transport=transport,
        over_sockets=over_sockets,
        notes=(*placement.notes, *((how,) if how else ()), *_oddities(rows, section, name)),
    )


def _check_rows(rows: Rows, num_ranks: int, name: str) -> None:
    """Refuses output whose rows mostly do not agree with themselves."""
    if rows.good and len(rows.damaged_lines) <= len(rows.good):
        return
    where = ", ".join(str(line) for line in rows.damaged_lines[:5])
    raise ProfileError(
        f"{name}: {len(rows.damaged_lines)} of {len(rows.good) + len(rows.damaged_lines)} rows do not agree with "
        f"themselves (lines {where or 'none'}): size = count x bytes of the type (x {num_ranks} ranks where it is "
        "sharded) and algbw = size / time must hold. Columns were lost or glued; give the output unchanged",
        key="rows",
        value=len(rows.damaged_lines),
    )


def _points(rows: Sequence[Row], section: Sequence[Line]) -> tuple[CurvePoint, ...]:
    """Returns one point per size, the median of its rows."""
    told = next((found for line in section if (found := _ITERATIONS.search(line.text))), None)
    iterations = int(told.group(1)) if told else 1
    by_size: dict[int, list[float]] = {}
    for row in rows:
        by_size.setdefault(row.size_bytes, []).append(row.time_us * 1e-6)
    return tuple(
        CurvePoint(
            bytes=size_bytes,
            seconds=float(f"{statistics.median(times):.6g}"),
            repetitions=iterations * len(times),
            spread=_spread(times),
        )
        for size_bytes, times in sorted(by_size.items())
    )


def _spread(times: Sequence[float]) -> float | None:
    """Interquartile range over median of at least four repeated rows."""
    if len(times) < 4:
        return None
    low, middle, high = statistics.quantiles(times, n=4)
    return float(f"{(high - low) / middle:.3g}")


def _oddities(rows: Rows, section: Sequence[Line], name: str) -> tuple[str, ...]:
    found = []
    if rows.damaged_lines:
        where = ", ".join(str(line) for line in rows.damaged_lines[:5])
        found.append(f"{name}: {len(rows.damaged_lines)} damaged rows left out (lines {where})")
    wrong = [row.line for row in rows.good if row.num_wrong > 0.5]
    if wrong:
        found.append(f"{name}: results were wrong (line {wrong[0]}): do not trust this network before that is mended")
    if not any(re.search(r"Avg bus bandwidth", line.text) for line in section):
        found.append(f"{name}: the output ends before its summary; the run may have been cut off")
    return tuple(found)


def _transport(section: Sequence[Line]) -> tuple[str, bool]:
    """Returns the library, its version and network by the log lines of NCCL_DEBUG=INFO, and whether it is sockets."""
    library = next((found for line in section if (found := _VERSION.search(line.text))), None)
    network = next((found.group(1) for line in section if (found := _NETWORK.search(line.text))), "")
    interfaces = next((found for line in section if (found := _INTERFACES.search(line.text))), None)
    if not network and interfaces is not None:
        network = interfaces.group(1)
    text = f"{library.group(1)} {library.group(2)}" if library else ("NCCL" if network else "")
    if network:
        text += f" over {network}"
    if interfaces is not None and network.lower() in (interfaces.group(1).lower(), ""):
        cards = re.findall(r"\[\d+\](\S+)", interfaces.group(2))
        text += f" ({', '.join(re.sub('<.*', '', card) for card in cards)})"
    return text, network.lower() == "socket"


def _nothing(lines: Sequence[Line], name: str) -> str:
    """Says what the file holds in place of a benchmark's rows, as far as that can be told."""
    failure = next((line for line in lines if _FAILURE.search(line.text)), None)
    if failure is not None:
        return f"{name} has no rows: the run failed (line {failure.number}: {failure.text.strip()[:160]})"
    first = next((line.text.strip() for line in lines if line.text.strip()), "")
    if first.startswith(("{", "[")) and '"' in first:
        return f"{name} is JSON (-J, -Z json); give the table that the benchmark prints without it"
    if any(re.search(r"algbw\s*,|,\s*busbw", line.text, re.IGNORECASE) for line in lines):
        return f"{name} is CSV (-Z csv); give the table that the benchmark prints without it"
    if any("nThread" in line.text or "Using devices" in line.text for line in lines):
        return f"{name} has the benchmark's header and no rows: it was cut off, or ended before the first size"
    return (
        f"{name} is no output of nccl-tests or rccl-tests: no line has the columns size, count and type; give what "
        "`all_gather_perf -b 1K -e 1G -f 4 -g 8` prints"
    )
