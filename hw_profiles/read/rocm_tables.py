"""Reads the tables that `rocm-smi --showtopo` and `amd-smi topology` print."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hw_profiles.errors import ProfileError
from hw_profiles.read.line_prefix import without_prefix
from hw_profiles.read.terminal_text import Line

_TITLES = {
    "weight": re.compile(r"Weight between|WEIGHT TABLE", re.IGNORECASE),
    "hops": re.compile(r"Hops between|HOPS TABLE", re.IGNORECASE),
    "type": re.compile(r"Link Type between|LINK TYPE TABLE|Type between two GPUs", re.IGNORECASE),
    "bandwidth": re.compile(r"Bandwidth between|NUMA BW TABLE", re.IGNORECASE),
    "": re.compile(
        r"Numa Nodes|ACCESS(?:IBLE)? TABLE|COHERAN\w* TABLE|ATOMICS TABLE|DMA TABLE|DIRECTIONAL TABLE|End of ROCm",
        re.IGNORECASE,
    ),
}
"""Titles of the tables that are read, and ("") of what ends one."""
_RULE = re.compile(r"={4,}\s.*(?:between|ROCm|Numa)|(?:ACCESS|WEIGHT|HOPS|LINK TYPE) TABLE", re.IGNORECASE)
"""Titles that begin their lines."""
_GPU = re.compile(r"(?:GPU\d+|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)(?=\s|$)", re.IGNORECASE)
"""rocm-smi names GPUs by number, amd-smi by their place on the bus."""
_NUMA = re.compile(r"GPU\s*\[?(\d+)\]?\s*:\s*(?:\(Topology\)\s*)?Numa (Node|Affinity)\s*:\s*(-?\d+)", re.IGNORECASE)
_AGAIN = "run `rocm-smi --showtopo > FILE` again and give the whole file"


@dataclass(frozen=True, slots=True)
class RocmTables:
    """The tables, by pairs (i < j) of GPUs in the dump's order."""

    gpus: tuple[str, ...]
    weights: dict[tuple[int, int], int]
    hops: dict[tuple[int, int], int]
    types: dict[tuple[int, int], str]
    bytes_per_s: dict[tuple[int, int], float]
    numa_nodes: tuple[int | None, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Table:
    columns: tuple[str, ...] = ()
    rows: dict[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)


def has_tables(lines: Sequence[Line]) -> bool:
    """Tells whether any line is the title of a table of rocm-smi or amd-smi."""
    return any(_title(line.text) for line in lines)


def read_tables(lines: Sequence[Line], name: str) -> RocmTables:
    """Returns the tables in `lines` of the dump called `name`.

    Raises:
        ProfileError: no table of link types, or a damaged one.
    """
    lines = without_prefix(lines, _RULE)
    tables = _tables(lines, name)
    if "type" not in tables or not tables["type"].rows:
        raise ProfileError(
            f"{name} has no table of link types between GPUs; {_AGAIN}", key="Link Type between two GPUs"
        )
    gpus = tables["type"].columns
    types = _pairs(tables["type"], gpus, "link types", name)
    wrong = next((pair for pair, value in types.items() if value not in ("XGMI", "PCIE")), None)
    if wrong is not None:
        raise ProfileError(
            f"{name}: {gpus[wrong[0]]} to {gpus[wrong[1]]} is {types[wrong]!r}, neither XGMI nor PCIE; {_AGAIN}",
            key="Link Type between two GPUs",
            value=types[wrong],
        )
    numbers = {
        what: {pair: _whole(value, what, name) for pair, value in _pairs(tables[what], gpus, what, name).items()}
        for what in ("weight", "hops")
        if what in tables
    }
    lost = tuple(what for what in ("weight", "hops") if what not in numbers)
    return RocmTables(
        gpus=gpus,
        weights=numbers.get("weight", {}),
        hops=numbers.get("hops", {}),
        types=types,
        bytes_per_s=_bandwidths(tables.get("bandwidth"), gpus, name),
        numa_nodes=_numa_nodes(lines, len(gpus)),
        notes=(f"{name} lacks its table of {' and '.join(lost)}: every XGMI pair counts as joined directly",)
        if lost
        else (),
    )


def _title(text: str) -> str | None:
    """Returns which table begins with this line; None if none does."""
    return next((what for what, pattern in _TITLES.items() if what and pattern.search(text)), None)


def _tables(lines: Sequence[Line], name: str) -> dict[str, _Table]:
    tables: dict[str, _Table] = {}
    current = ""
    for line in lines:
        title = _title(line.text)
        if title is not None:
            current = title
            tables.setdefault(title, _Table())
        elif _TITLES[""].search(line.text):
            current = ""
        elif current:
            _add_line(tables[current], line, name)
    return tables


def _add_line(table: _Table, line: Line, name: str) -> None:
    tokens = line.text.split()
    if not tokens or not _GPU.fullmatch(tokens[0]):
        return
    if len(tokens) == 1 or _GPU.fullmatch(tokens[1]):
        if table.columns and table.columns != tuple(tokens):
            raise ProfileError(f"{name}: line {line.number}: two headers in one table that differ; {_AGAIN}")
        table.columns = tuple(tokens)
        return
    values = tuple(tokens[1:])
    first, where = table.rows.setdefault(tokens[0], (values, line.number))
    if first != values:
        raise ProfileError(
            f"{name}: row {tokens[0]} stands in line {where} and, with other values, in line {line.number}: two "
            "different dumps in one file; give one node's dump (all nodes must be alike)",
            key=tokens[0],
        )


def _pairs(table: _Table, gpus: Sequence[str], what: str, name: str) -> dict[tuple[int, int], str]:
    """Returns the upper half of a whole, symmetric table."""
    if table.columns != tuple(gpus):
        raise ProfileError(
            f"{name}: the table of {what} has the columns {', '.join(table.columns) or 'none'} where {', '.join(gpus)} "
            f"are expected: its header is cut off or lost; {_AGAIN}",
            key=what,
        )
    for gpu in gpus:
        if gpu not in table.rows:
            raise ProfileError(f"{name}: the table of {what} has no row {gpu}; {_AGAIN}", key=gpu)
        values, line = table.rows[gpu]
        if len(values) != len(gpus):
            raise ProfileError(
                f"{name}: line {line}: row {gpu} of {what} has {len(values)} values for {len(gpus)} columns; {_AGAIN}",
                key=gpu,
                value=len(values),
            )
    stray = next((row for row in table.rows if row not in gpus), None)
    if stray is not None:
        raise ProfileError(f"{name}: row {stray} of {what} has no column of its own; {_AGAIN}", key=stray)
    pairs = {}
    for i, gpu in enumerate(gpus):
        for j, other in enumerate(gpus[i + 1 :], start=i + 1):
            there, back = table.rows[gpu][0][j], table.rows[other][0][i]
            if there != back:
                raise ProfileError(
                    f"{name}: {what}: {gpu} to {other} is {there}, but {other} to {gpu} is {back}: damaged; {_AGAIN}",
                    key=f"{gpu}, {other}",
                )
            pairs[i, j] = there
    return pairs


def _whole(value: str, what: str, name: str) -> int:
    if not value.isdigit():
        raise ProfileError(f"{name}: {value!r} in the table of {what} is no number; {_AGAIN}", key=what, value=value)
    return int(value)


def _bandwidths(table: _Table | None, gpus: Sequence[str], name: str) -> dict[tuple[int, int], float]:
    """Returns what a pair's links carry, where the tool knows it: the greater of `least-most` in MB/s."""
    if table is None or not table.rows:
        return {}
    found = {}
    for pair, value in _pairs(table, gpus, "bandwidths", name).items():
        most = re.fullmatch(r"\d+-(\d+)", value)
        if most is not None and int(most.group(1)) > 0:
            found[pair] = int(most.group(1)) * 1e6
    return found


def _numa_nodes(lines: Sequence[Line], num_gpus: int) -> tuple[int | None, ...]:
    nodes: dict[int, int] = {}
    for line in lines:
        found = _NUMA.search(line.text)
        if (
            found is not None
            and int(found.group(3)) >= 0
            and (found.group(2).lower() == "node" or int(found.group(1)) not in nodes)
        ):
            nodes[int(found.group(1))] = int(found.group(3))
    return tuple(nodes.get(gpu) for gpu in range(num_gpus))
