"""Which collective a benchmark's rows are of: what the output says it is, checked against its own numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from hw_profiles.errors import ProfileError
from hw_profiles.read.collective_rows import Row
from hw_profiles.read.terminal_text import Line
from hw_profiles.schema import Operation

_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_PROGRAMS: dict[str, Operation | None] = {
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoallv": None,
    "sendrecv": None,
    "gather": None,
    "scatter": None,
    "hypercube": None,
}
"""Programs of nccl-tests by their names without `_` and `_perf`; None: its operation is none that is planned with."""
_NAMES = re.compile(
    r"(?<![a-z])(all[_-]?gather|reduce[_-]?scatter|all[_-]?reduce|all[_-]?to[_-]?all(?:v(?![a-z]))?|alltoallv?"
    r"|sendrecv|send[_-]recv|hypercube|broadcast|gather|scatter|reduce)(?![a-z])"
)
_PROGRAM = re.compile(rf"{_NAMES.pattern}_perf", re.IGNORECASE)
_SHARDED: tuple[Operation, ...] = ("all_gather", "reduce_scatter", "all_to_all")
"""Operations whose `count` column is a rank's shard."""
_REDUCING: tuple[Operation, ...] = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED: tuple[Operation, ...] = ("broadcast", "reduce")


def bus_factor(operation: Operation, num_ranks: int) -> float:
    """Returns bus bandwidth over algorithm bandwidth.

    Source: nccl-tests doc/PERFORMANCE.md.
    """
    if operation in _ROOTED:
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (num_ranks - 1) / num_ranks


def named_operation(lines: Sequence[Line], file_name: str) -> tuple[Operation | None, str]:
    """Returns the operation by the program's name in the output, else by the file's name, and the name as found.

    (None, "") where nothing is named, (None, NAME) where the program is none of a planned operation.
    """
    for line in lines:
        if "perf" in line.text:
            found = _PROGRAM.search(line.text)
            if found is not None:
                return _PROGRAMS[_bare(found.group(1))], found.group(0)
    names = dict.fromkeys(_bare(found) for found in _NAMES.findall(file_name.lower().replace(".", " ")))
    # A file called `nccl_all_gather_and_reduce_scatter.txt` names nothing.
    return (_PROGRAMS[next(iter(names))], next(iter(names))) if len(names) == 1 else (None, "")


def possible_operations(rows: Sequence[Row], num_ranks: int) -> tuple[Operation, ...]:
    """Returns the operations that the rows can be of, by sharding, redop, root and the ratio of the bandwidths."""
    possible = _OPERATIONS
    told = [row for row in rows if row.is_sharded is not None]
    if told:
        possible = tuple(each for each in possible if (each in _SHARDED) == told[0].is_sharded)
    if rows[0].redop:
        possible = tuple(each for each in possible if (each in _REDUCING) == (rows[0].redop != "none"))
        if rows[0].root is not None:
            possible = tuple(each for each in possible if (each in _ROOTED) == (rows[0].root >= 0))
    best = max(rows, key=lambda row: row.algbw)
    if best.algbw > 0:
        rounding = 0.006 / best.algbw * (1 + best.busbw / best.algbw) + 0.01
        possible = tuple(
            each for each in possible if abs(best.busbw / best.algbw - bus_factor(each, num_ranks)) <= rounding
        )
    return possible


def operation_of(
    rows: Sequence[Row], num_ranks: int, named: Operation | None, name: str, given: Operation | None
) -> tuple[Operation, str]:
    """Returns the operation of `rows`, and a note on how it is known where nothing names it.

    Args:
        rows: at least one.
        num_ranks: of a group.
        named: by the program or the file, if any.
        name: of the file.
        given: by the user, who comes first.

    Raises:
        ProfileError: it stays open, or the numbers are of another operation.
    """
    possible = possible_operations(rows, num_ranks)
    said = given or named
    if said is not None:
        if said not in possible:
            raise ProfileError(_contradiction(rows, num_ranks, said, possible, name), key="operation", value=said)
        return said, ""
    if len(possible) == 1:
        return possible[
            0
        ], f"{name}: nothing names the operation; its columns and bandwidths are those of {possible[0]}"
    if not possible:
        raise ProfileError(_contradiction(rows, num_ranks, None, possible, name), key="operation")
    raise ProfileError(
        f"{name}: the output does not say which operation it is of; its numbers fit {' and '.join(possible)}. Put the "
        f"operation into the file's name (`{possible[0]}.txt`), or give it as --collectives {possible[0]}=FILE",
        key="operation",
        expected=" or ".join(possible),
    )


def _contradiction(
    rows: Sequence[Row], num_ranks: int, said: Operation | None, possible: Sequence[Operation], name: str
) -> str:
    best = max(rows, key=lambda row: row.algbw)
    ratio = best.busbw / best.algbw if best.algbw > 0 else 0.0
    fits = f"; they fit {' or '.join(possible)}" if possible else ""
    whose = (
        f"of {said} with {num_ranks} ranks, where busbw is {bus_factor(said, num_ranks):.4g} x algbw"
        if said is not None
        else f"of no operation with {num_ranks} ranks"
    )
    return (
        f"{name}: line {best.line}: the numbers are not those {whose}: here it is {ratio:.4g} x{fits}. "
        "Give the output of one program, whole and unchanged"
    )


def _bare(name: str) -> str:
    return re.sub(r"[_-]", "", name.lower())
