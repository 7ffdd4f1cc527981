"""Refuses a matrix of `nvidia-smi topo -m` that is damaged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hw_profiles.errors import ProfileError
from hw_profiles.read.matrix_rows import MatrixRow
from hw_profiles.read.no_matrix import AGAIN
from hw_profiles.read.terminal_text import Line


def check_matrix(rows: Sequence[MatrixRow], names: Sequence[str], lines: Sequence[Line], name: str) -> None:
    """Does nothing where `rows` are whole, symmetric, and one for each GPU among the columns `names`.

    Args:
        rows: each once.
        names: of the columns.
        lines: that the rows are from.
        name: of the dump, for messages.

    Raises:
        ProfileError: with the line and what to try.
    """
    _check_there(rows, names, lines, name)
    _check_rows(rows, names, name)
    cells = {(row.name, column): cell for row in rows for column, cell in zip(names, row.cells, strict=True)}
    _check_symmetry([column for column in names if column.startswith("GPU")], cells, name)


def _check_there(rows: Sequence[MatrixRow], names: Sequence[str], lines: Sequence[Line], name: str) -> None:
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


def _check_rows(rows: Sequence[MatrixRow], names: Sequence[str], name: str) -> None:
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


def _check_symmetry(gpus: Sequence[str], cells: Mapping[tuple[str, str], str], name: str) -> None:
    for i, gpu in enumerate(gpus):
        for other in gpus[i + 1 :]:
            there, back = cells[gpu, other], cells[other, gpu]
            if there != back:
                raise ProfileError(
                    f"{name}: {gpu} to {other} is {there}, but {other} to {gpu} is {back}: damaged; {AGAIN}",
                    key=f"{gpu}, {other}",
                )
