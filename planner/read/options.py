"""The options of the command line that more than one command has, and how their texts are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)", re.ASCII)
_UNIT_BYTES: Mapping[str, int] = {"": 1, "b": 1} | {
    f"{letter}{suffix}".lower(): factor**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, factor in (("B", 1000), ("iB", 1024))
}


def parse_bytes(text: str) -> int:
    """Returns the bytes that a text such as `85899345920`, `70GiB` or `70 GB` stands for.

    Raises:
        typer.BadParameter: not a size, a unit that is not written out, or no bytes at all.
    """
    match = _SIZE.fullmatch(text.strip())
    unit_bytes = _UNIT_BYTES.get(match["unit"].lower()) if match else None
    if match is None or unit_bytes is None:
        raise typer.BadParameter(f"{text!r} is not a size; write bytes, or a unit such as 70GiB or 70GB")
    num_bytes = int(float(match["number"]) * unit_bytes)
    if num_bytes < 1:
        raise typer.BadParameter(f"{text!r} is no memory at all; a plan needs at least one byte")
    return num_bytes


class Degrees(NamedTuple):
    """(p, g, o) as an option."""

    param: int
    grad: int
    optim: int


class Counts(tuple[int, ...]):
    """Several numbers as one option."""

    __slots__ = ()


def parse_degrees(text: str) -> Degrees:
    """Returns (p, g, o) of a text such as `1,8,32`.

    Raises:
        typer.BadParameter: not three positive whole numbers.
    """
    numbers = _positive_integers(text)
    if numbers is None or len(numbers) != 3:
        raise typer.BadParameter(f"{text!r} is not p,g,o: three positive whole numbers, such as 1,8,32")
    return Degrees(*numbers)


def parse_counts(text: str) -> Counts:
    """Returns the numbers of a text such as `1,2,4`.

    Raises:
        typer.BadParameter: not a list of positive whole numbers.
    """
    numbers = _positive_integers(text)
    if not numbers:
        raise typer.BadParameter(f"{text!r} is not a list of positive whole numbers, such as 1,2,4")
    return Counts(numbers)


def _positive_integers(text: str) -> tuple[int, ...] | None:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        return None
    return tuple(int(part) for part in parts)


Nodes = Annotated[int | None, typer.Option(min=1, metavar="N", help="Nodes; default: the profile's.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write plan.json, ds_config.json and the launcher here.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is at --out.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Every alternative, and the traffic.")]
Pareto = Annotated[
    bool, typer.Option("--pareto", help="Show too what more or less memory would make of the step time.")
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="What `plan --out DIR` or `estimate --out DIR` wrote.")]
TIME_LIMIT_S = 120.0
"""Seconds that a trace may take."""

Autocast = Annotated[
    Literal["bf16", "fp16"] | None,
    typer.Option(help="Weights of fp32, and the step under torch.autocast in this type.", show_default=False),
]
Way = Annotated[
    Literal["auto", "fake", "make_fx", "static"],
    typer.Option("--trace", help="How: exactly, on fake tensors; as one joint graph; from the layers alone."),
]
TimeLimit = Annotated[
    float, typer.Option(min=1.0, metavar="S", help="Seconds after which a model that does not end is given up.")
]
