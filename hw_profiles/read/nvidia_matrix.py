"""Reads the matrix that `nvidia-smi topo -m` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hw_profiles.errors import ProfileError
from hw_profiles.read.line_prefix import without_prefix
from hw_profiles.read.no_matrix import AGAIN, PEERS, no_matrix
from hw_profiles.read.terminal_text import Line

_CELL = re.compile(r"\s*(X(?!GMI)|NV\d+|C2C|PIX|PXB|PHB|NODE|SYS|SOC)")
"""Source: the command's legend; SOC is what drivers before 2017 call SYS."""
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


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    cells: tuple[str, ...]
    rest: tuple[str, ...]
    line: int


def read_matrix(lines: Sequence[Line], name: str) -> NvidiaMatrix:
    """Returns the matrix in `lines` of the dump called `name`.

    Raises:
        ProfileError: no matrix, a damaged one, or several that differ.
    """
    lines = without_prefix(lines, _FIRST)
    rows = _rows(lines)
    if not any(row.name.startswith("GPU") for row in rows):
        raise ProfileError(no_matrix(lines, name))
    rows, notes = _once(rows, name)
    header, has_numa = _header(lines)
    names, more = _names(rows, header, name)
    _check_there(rows, names, lines, name)
    _check_rows(rows, names, name)
    cells = {(row.name, column): cell for row in rows for column, cell in zip(names, row.cells, strict=True)}
    gpus = tuple(column for column in names if column.startswith("GPU"))
    _check_symmetry(gpus, cells, name)
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


def _rows(lines: Sequence[Line]) -> tuple[_Row, ...]:
    """Returns every line that is a name and at least one cell; columns may be glued."""
    rows = []
    for line in lines:
        start = re.match(r"\s*(GPU\d+|\S+)", line.text)
        if start is None or _CELL.fullmatch(start.group(1)):
            continue
        position, cells = start.end(), []
        while (cell := _CELL.match(line.text, position)) is not None:
            cells.append("SYS" if cell.group(1) == "SOC" else cell.group(1))
            position = cell.end()
        if cells and not PEERS.search(line.text, position):
            rows.append(_Row(start.group(1), tuple(cells), tuple(line.text[position:].split()), line.number))
    return tuple(rows)


def _once(rows: Sequence[_Row], name: str) -> tuple[tuple[_Row, ...], tuple[str, ...]]:
    """Returns each row once: several nodes of one kind print the same matrix."""
    kept: dict[str, _Row] = {}
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
        if named and re.fullmatch(r"GPU\d+", named[0]) and not (named[1:] and _CELL.match(named[1])):
            return tuple(named), bool(re.search(r"NUMA\s*Aff", line.text))
    return (), False


def _names(rows: Sequence[_Row], header: tuple[str, ...], name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
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


def _check_unnamed(rows: Sequence[_Row], num_named: int, is_lost: bool, name: str) -> None:
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


def _check_there(rows: Sequence[_Row], names: Sequence[str], lines: Sequence[Line], name: str) -> None:
    """Refuses a matrix with a GPU in its header that has no row, or one without links."""
    own = [row.name for row in rows]
    lost = [column for column in names if column.startswith("GPU") and column not in own]
    if not lost:
        return
    begun = next((line for line in lines if re.match(rf"\s*{lost[0]}\s+(?!GPU)\S", line.text)), None)
    if begun is not None:
        cell = begun.text.split()[1]
        raise ProfileError(
            f"{name}: line {begun.number}: row {lost[0]} begins with {cell!r}, which is no kind of link: the driver "
            f"cannot tell what joins these GPUs, or the row is damaged; {AGAIN}",
            key=lost[0],
            value=cell,
        )
    raise ProfileError(f"{name}: the header names {', '.join(lost)}, but no such row is there; {AGAIN}", key=lost[0])


def _check_rows(rows: Sequence[_Row], names: Sequence[str], name: str) -> None:
    """Refuses a matrix with short rows, or rows whose X is not in their own column."""
    for row in rows:
        where = f"{name}: line {row.line}: row {row.name}"
        if row.name not in names:
            raise ProfileError(f"{where} has no column of its own (columns: {', '.join(names)}); {AGAIN}", key=row.name)
        if len(row.cells) != len(names):
            raise ProfileError(
                f"{where} has {len(row.cells)} cells for {len(names)} columns: cut off, or a column was lost; {AGAIN}",
                key=row.name,
                value=len(row.cells),
                expected=str(len(names)),
            )
        if [column for column, cell in zip(names, row.cells, strict=True) if cell == "X"] != [row.name]:
            raise ProfileError(
                f"{where} must have X in its own column and nowhere else: its cells were shifted; {AGAIN}",
                key=row.name,
            )


def _check_symmetry(gpus: Sequence[str], cells: dict[tuple[str, str], str], name: str) -> None:
    for i, gpu in enumerate(gpus):
        for other in gpus[i + 1 :]:
            there, back = cells[gpu, other], cells[other, gpu]
            if there != back:
                raise ProfileError(
                    f"{name}: {gpu} to {other} is {there}, but {other} to {gpu} is {back}: damaged; {AGAIN}",
                    key=f"{gpu}, {other}",
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


def _numa(row: _Row, has_numa: bool) -> int | None:
    return int(row.rest[1]) if has_numa and len(row.rest) > 1 and row.rest[1].isdigit() else None


def _place(row: _Row, has_numa: bool) -> str:
    numa = _numa(row, has_numa)
    if numa is not None:
        return f"NUMA node {numa}"
    cores = row.rest[0] if row.rest else ""
    return f"cores {cores}" if re.match(r"\d", cores) else ""
