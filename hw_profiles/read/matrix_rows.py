"""The rows of the matrix that `nvidia-smi topo -m` prints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hw_profiles.read.no_matrix import PEERS
from hw_profiles.read.terminal_text import Line

CELL = re.compile(r"\s*(X(?!GMI)|NV\d+|C2C|PIX|PXB|PHB|NODE|SYS|SOC)")
"""Source: the command's legend; SOC is what drivers before 2017 call SYS."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A name and its cells."""

    name: str
    cells: tuple[str, ...]
    rest: tuple[str, ...]
    line: int


def matrix_rows(lines: Sequence[Line]) -> tuple[MatrixRow, ...]:
    """Returns every line that is a name and at least one cell; columns may be glued."""
    rows = []
    for line in lines:
        start = re.match(r"\s*(GPU\d+|\S+)", line.text)
        if start is None or CELL.fullmatch(start.group(1)):
            continue
        position, cells = start.end(), []
        while (cell := CELL.match(line.text, position)) is not None:
            cells.append("SYS" if cell.group(1) == "SOC" else cell.group(1))
            position = cell.end()
        if cells and not PEERS.search(line.text, position):
            rows.append(MatrixRow(start.group(1), tuple(cells), tuple(line.text[position:].split()), line.number))
    return tuple(rows)
