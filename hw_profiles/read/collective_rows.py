"""Reads the rows of nccl-tests and rccl-tests, and finds damaged ones by their own arithmetic.

A row is `size count type [redop] [root] time algbw busbw #wrong`, the last four again for the in-place call. Older
versions print redop and root only where the operation has one. `size` is the larger of the send and the receive buffer:
the full message before sharding. `count` is per rank where the operation shards.

Source: nccl-tests src/common.cu (TimeTest), src/util.cu (writeBenchmarkLinePreamble, writeBenchmarkLineBody), and the
GetCollByteCount of each operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hw_profiles.read.terminal_text import Line

_TYPE_BYTES = {
    "int8": 1, "uint8": 1, "char": 1, "int32": 4, "uint32": 4, "int": 4, "int64": 8, "uint64": 8, "half": 2, "fp16": 2,
    "float": 4, "fp32": 4, "double": 8, "bfloat16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}  # fmt: skip
_TYPES = "|".join(sorted(_TYPE_BYTES, key=len, reverse=True))
_LABEL = re.compile(r"\[\d+\](?=\s|$)")
"""What some launchers put before each part of a row that a rank prints."""
_NO_MEASURES = re.compile(r"(-1|\d+)?\s*(?:$|[A-Za-z])")
"""The rest of a row that ends after its root, or goes on as a log line."""
_NUMBERS = re.compile(r"\s*(?:\d[\d.e+-]*\s+){3}(?:[\d.e+-]+|N/A)(?:\s.*)?")
_ROW = re.compile(
    rf"(?<![\w.])(\d+)(?:\s+(\d+))?\s*({_TYPES})(?![a-z0-9])\s*"
    r"(sum|prod|max|min|avg|mulsum|none|all)?(?=[\s\-\d])\s*(.*)$"
)
"""A size, maybe glued to its count, then the type; blanks between the columns may be lost."""


@dataclass(frozen=True, slots=True)
class Row:
    """One size."""

    line: int
    size_bytes: int
    is_sharded: bool | None
    """Whether `count` is a rank's shard; None where a run of one rank or a size of 0 cannot tell."""
    redop: str
    """"" in versions that do not print it."""
    root: int | None
    time_us: float
    algbw: float
    """1e9 bytes per second."""
    busbw: float
    num_wrong: float


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one run."""

    good: tuple[Row, ...]
    damaged_lines: tuple[int, ...]


def looks_like_row(text: str) -> bool:
    """Tells whether a line has a row's first columns."""
    return _ROW.search(text) is not None


def read_rows(lines: tuple[Line, ...], num_ranks: int) -> Rows:
    """Returns the rows in `lines` of a run with `num_ranks` ranks in a group; those that do not agree apart."""
    good: list[Row] = []
    damaged: list[int] = []
    for number, text in _whole_rows(lines):
        found = _ROW.search(text)
        row = None if found is None else _row(found, number, num_ranks)
        if row is None:
            damaged.append(number)
        elif row.size_bytes > 0:
            good.append(row)
    return Rows(tuple(good), tuple(damaged))


def _whole_rows(lines: tuple[Line, ...]) -> Iterator[tuple[int, str]]:
    """Yields each row's text: a log line printed in its middle, or a label before each part of it, breaks a row."""
    opened: tuple[int, str] | None = None
    for line in lines:
        text = _LABEL.sub(" ", line.text)
        found = _ROW.search(text)
        if found is not None:
            if opened is not None:
                yield opened
                opened = None
            cut = _NO_MEASURES.match(found.group(5))
            if cut is None:
                yield line.number, text
            else:
                opened = line.number, f"{text[: found.start(5)]} {cut.group(1) or ''}"
        elif opened is not None and _NUMBERS.fullmatch(text):
            yield opened[0], f"{opened[1]} {text}"
            opened = None
    if opened is not None:
        yield opened


def _row(found: re.Match[str], line: int, num_ranks: int) -> Row | None:
    """Returns the row, or None where size, count and type, or size, time and bandwidth, do not agree."""
    sizes = _size_and_count(found.group(1), found.group(2), _TYPE_BYTES[found.group(3)], num_ranks)
    if sizes is None:
        return None
    size_bytes, is_sharded = sizes
    rest = found.group(5)
    root = re.match(r"-1(?=\s|\d|$)", rest)
    tokens = tuple((rest[root.end() :] if root else rest).split())
    for measures, number in _measures(tokens, root is not None):
        time_us, algbw, busbw = measures[:3]
        if _agree(size_bytes, time_us, algbw):
            wrong = measures[3] if len(measures) > 3 else 0.0
            own_root = -1 if root else number
            return Row(line, size_bytes, is_sharded, found.group(4) or "", own_root, time_us, algbw, busbw, wrong)
    return None


def _size_and_count(size: str, count: str | None, type_bytes: int, num_ranks: int) -> tuple[int, bool | None] | None:
    """Returns the message's bytes and whether `count` is a shard; the two may be glued together."""
    pairs = [(size, count)] if count is not None else [(size[:cut], size[cut:]) for cut in range(1, len(size))]
    fits = []
    for one, other in pairs:
        # A count does not begin with 0, but for the rows of 0 bytes that large groups print first.
        if other.startswith("0") and other != "0":
            continue
        whole, part = int(one), int(other) * type_bytes
        if whole == part:
            fits.append((whole, None if num_ranks == 1 or whole == 0 else False))
        elif whole == part * num_ranks:
            fits.append((whole, True))
    return fits[0] if len(fits) == 1 else None


def _measures(tokens: tuple[str, ...], has_root: bool) -> Iterator[tuple[tuple[float, ...], int | None]]:
    """Yields how the rest of a row can be read: (time, algbw, busbw, wrong), and the root before them."""
    for split in _unglued(tokens[:6]):
        numbers = [_number(token) for token in split]
        if not has_root and len(split) > 3 and split[0].isdigit() and None not in numbers[1:4]:
            yield tuple(number or 0.0 for number in numbers[1:5]), int(split[0])
        if len(split) > 2 and None not in numbers[:3]:
            yield tuple(number or 0.0 for number in numbers[:4]), None


def _unglued(tokens: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yields the tokens as they are, then with the first pair of glued numbers (`407.61212.41`) taken apart."""
    yield tokens
    for index, token in enumerate(tokens[:3]):
        if token.count(".") > 1:
            for decimals in (2, 1):
                cut = token.index(".") + 1 + decimals
                yield (*tokens[:index], token[:cut], token[cut:], *tokens[index + 1 :])
            return


def _number(token: str) -> float | None:
    if token == "N/A":
        return 0.0
    return float(token) if re.fullmatch(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", token) else None


def _agree(size_bytes: int, time_us: float, algbw: float) -> bool:
    """Tells whether size / time is the printed bandwidth, within what printing rounds."""
    if time_us <= 0:
        return False
    expected = size_bytes / time_us / 1e3
    # Two decimals near 0, three digits far above, two where the time is printed as 1.2e+07.
    return abs(expected - algbw) <= 0.0055 + 0.02 * max(expected, algbw)
