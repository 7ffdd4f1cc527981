"""Reads the matrix that `nvidia-smi topo -m` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hw_profiles.errors import ProfileError
from hw_profiles.read.check_matrix import check_matrix
from hw_profiles.read.line_prefix import without_prefix
from hw_profiles.read.matrix_rows import CELL, MatrixRow, matrix_rows
from hw_profiles.read.no_matrix import AGAIN, no_matrix
from hw_profiles.read.terminal_text import Line

_FIRST = re.compile(r"GPU\d+\s*X(?!GMI)(?![a-z])")
"""The first GPU's row: X is its first cell."""
_COLUMN = re.compile(r"GPU\d+|NIC\d+|\S+")
_AFFINITY = re.compile(r"CPU\s*Aff|NUMA\s*Aff|GPU\s*NUMA")
_LEGEND = re.compile(r"^\s*(NIC\d+)\s*:\s*(\S+)\s*$")


@dataclass(frozen=True, slots=True)
class NvidiaMatrix:
    """The matrix, and the columns after it."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    nic_interfaces: dict[str, str]
    """`NIC0` to `mlx5_0`, where the dump has a legend."""
    cells: dict[tuple[str, str], str]
    """From a GPU's row (and a NIC's, where it has one) to every column."""
    numa_nodes: tuple[int | None, ...]
    places: tuple[str, ...]
    """Per GPU: a text that GPUs of one NUMA node share; "" where nothing is said."""
    notes: tuple[str, ...]


def read_matrix(lines: Sequence[Line], name: str) -> NvidiaMatrix:
    """Returns the matrix in `lines` of the dump called `name`.

    Raises:
        ProfileError: no matrix, a damaged one, or several that differ.
    """
    lines = without_prefix(lines, _FIRST)
    rows = matrix_rows(lines)
    if not any(row.name.startswith("GPU") for row in rows):
        raise ProfileError(no_matrix(lines, name))
    rows, notes = _once(rows, name)
    header, has_numa = _header(lines)
    names, more = _names(rows, header, name)
    check_matrix(rows, names, lines, name)
    cells = {(row.name, column): cell for row in rows for column, cell in zip(names, row.cells, strict=True)}
    gpus = tuple(column for column in names if column.startswith("GPU"))
    by_name = {row.name: row for row in rows}
    legend = [found for line in lines if (found := _LEGEND.match(line.text))]
    return NvidiaMatrix(
        gpus=gpus,
        nics=tuple(column for column in names if not column.startswith("GPU")),
        nic_interfaces={found.group(1): found.group(2) for found in legend},
        cells=cells,
        numa_nodes=tuple(_numa(by_name[gpu], has_numa) for gpu in gpus),
        places=tuple(_place(by_name[gpu], has_numa) for gpu in gpus),
        notes=(*notes, *more, *_pcie_only(cells, gpus, lines, name)),
    )


def _once(rows: Sequence[MatrixRow], name: str) -> tuple[tuple[MatrixRow, ...], tuple[str, ...]]:
    """Returns each row once: several nodes of one kind print the same matrix."""
    kept: dict[str, MatrixRow] = {}
    repeated = False
    for row in rows:
        first = kept.setdefault(row.name, row)
        if first.cells != row.cells:
            raise ProfileError(
                f"{name}: row {row.name} stands in line {first.line} and, with other cells, in line {row.line}: two "
                "different dumps in one file; give one node's dump (all nodes must be alike)",
                key=row.name,
            )
        repeated = repeated or first is not row
    notes = (f"{name} holds the same matrix more than once; taken once",) if repeated else ()
    return tuple(kept.values()), notes


def _header(lines: Sequence[Line]) -> tuple[tuple[str, ...], bool]:
    """Returns the columns' names of the matrix, and whether a NUMA node's column follows them."""
    for line in lines:
        named = _COLUMN.findall(_AFFINITY.split(line.text)[0])
        if named and re.fullmatch(r"GPU\d+", named[0]) and not (named[1:] and CELL.match(named[1])):
            return tuple(named), bool(re.search(r"NUMA\s*Aff", line.text))
    return (), False


def _names(rows: Sequence[MatrixRow], header: tuple[str, ...], name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the columns' names: the header's, and the rows' where the header was cut off or lost."""
    width = max(len(row.cells) for row in rows if row.name.startswith("GPU"))
    if len(header) >= width:
        return header, ()
    own = tuple(row.name for row in rows)
    if own[: len(header)] != header or sum(row.startswith("GPU") for row in own) > width:
        raise ProfileError(
            f"{name}: the header names {len(header)} columns ({', '.join(header) or 'it is lost'}), rows have {width}, "
            f"and the rows' own names ({', '.join(own)}) do not fill the gap; {AGAIN}"
        )
    names = (own + tuple(f"column {index + 1}" for index in range(len(own), width)))[:width]
    _check_unnamed(rows, len(own), not header, name)
    what = f"names {len(header)} of {width} columns" if header else "is lost"
    return names, (f"{name}: the header {what}; the rest named by the rows",)


def _check_unnamed(rows: Sequence[MatrixRow], num_named: int, is_lost: bool, name: str) -> None:
    """Refuses columns without a name that may be of GPUs: rows are missing then."""
    cells = [cell for row in rows if row.name.startswith("GPU") for cell in row.cells[num_named:]]
    if cells and (is_lost or any(re.match("NV|C2C|X", cell) for cell in cells)):
        width = max(len(row.cells) for row in rows)
        raise ProfileError(
            f"{name}: {num_named} rows are there for {width} columns, and no header says that the others are network "
            f"cards: rows are missing; {AGAIN}",
            key="rows",
            value=num_named,
            expected=str(width),
        )


def _pcie_only(
    cells: dict[tuple[str, str], str], gpus: Sequence[str], lines: Sequence[Line], name: str
) -> tuple[str, ...]:
    """Says that NVLinks may be there where the command that printed the matrix leaves them out.

    Source: `nvidia-smi topo --help`: -mp is -m without NVLinks; its legend does not name them.
    """
    if any(re.match("NV|C2C", cells[one, other]) for one in gpus for other in gpus):
        return ()
    has_legend = any(re.match(r"\s*PIX\s*=", line.text) for line in lines)
    names_nvlinks = any(re.match(r"\s*NV#\s*=", line.text) for line in lines)
    asked = any("topo -mp" in line.text for line in lines)
    if asked or (has_legend and not names_nvlinks):
        return (f"{name} is of `nvidia-smi topo -mp`, which leaves out NVLinks: if there are any, give `topo -m`",)
    return ()


def _numa(row: MatrixRow, has_numa: bool) -> int | None:
    return int(row.rest[1]) if has_numa and len(row.rest) > 1 and row.rest[1].isdigit() else None


def _place(row: MatrixRow, has_numa: bool) -> str:
    numa = _numa(row, has_numa)
    if numa is not None:
        return f"NUMA node {numa}"
    cores = row.rest[0] if row.rest else ""
    return f"cores {cores}" if re.match(r"\d", cores) else ""
