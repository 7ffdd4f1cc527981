"""Which collective a benchmark's rows are of: what the output says it is, checked against its own numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hw_profiles.errors import ProfileError
from hw_profiles.read.collective_rows import Row
from hw_profiles.read.terminal_text import Line
from hw_profiles.schema import OPERATIONS, Operation

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
_SHORT: dict[str, Operation] = {"gather": "all_gather", "scatter": "reduce_scatter"}
"""What files are called for short."""
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


def program_of(lines: Sequence[Line]) -> tuple[str, Operation | None]:
    """Returns the program that the output names ("" if none), and its operation (None if no plan has it)."""
    for line in lines:
        found = _PROGRAM.search(line.text) if "perf" in line.text else None
        if found is not None:
            return found.group(0), _PROGRAMS[_bare(found.group(1))]
    return "", None


def hint_of(file_name: str) -> Operation | None:
    """Returns the operation that the file's name suggests; people shorten it (`gather_8.txt`)."""
    names = dict.fromkeys(_bare(found) for found in _NAMES.findall(file_name.lower().replace(".", " ")))
    # A file called `all_gather_and_reduce_scatter.txt` suggests nothing.
    suggested = next(iter(names)) if len(names) == 1 else ""
    return _SHORT.get(suggested) or _PROGRAMS.get(suggested)


def possible_operations(rows: Sequence[Row], num_ranks: int) -> tuple[Operation, ...]:
    """Returns the operations that the rows can be of, by sharding, redop, root and the ratio of the bandwidths."""
    possible = OPERATIONS
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


def operation_of(rows: Sequence[Row], num_ranks: int, said: Operation | None, name: str) -> tuple[Operation, str]:
    """Returns the operation of `rows`, and a note on how it is known where nothing says it.

    Args:
        rows: at least one.
        num_ranks: of a group.
        said: by the user or the program, if any.
        name: of the file, which may suggest one.

    Raises:
        ProfileError: it stays open, or the numbers are of another operation.
    """
    possible = possible_operations(rows, num_ranks)
    if not possible or (said is not None and said not in possible):
        raise ProfileError(_contradiction(rows, num_ranks, said, possible, name), key="operation", value=said or "")
    if said is not None:
        return said, ""
    hint = hint_of(name)
    if len(possible) == 1:
        return possible[0], f"{name}: nothing names the operation; its columns and numbers are those of {possible[0]}"
    if hint in possible and hint is not None:
        return hint, f"{name}: taken for {hint} by the file's name; its numbers fit {' and '.join(possible)}"
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
