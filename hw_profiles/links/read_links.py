"""Reads a graph of links from a JSON file that people write; docs/links.md has the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from hw_profiles.errors import ProfileError
from hw_profiles.links.check_connected import check_connected
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.schema import Link

_Vertex = Annotated[str, Field(coerce_numbers_to_str=True, min_length=1)]
_MOST_RANKS = 1024
_LEAST_BYTES_PER_S = 1e5
"""Slower than any wire between ranks: a number in another unit."""
_FORMAT = (
    '{"ranks": 8, "switches": ["nvswitch"], "links": [{"between": [0, "nvswitch"], "bytes_per_s": 300e9}, ...]}, or a '
    "node-link JSON of networkx"
)


class _WrittenLink(BaseModel):
    """A wire both ways (`between`) or one way (`from`, `to`)."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    between: tuple[_Vertex, _Vertex] | None = None
    source: _Vertex | None = Field(None, alias="from")
    target: _Vertex | None = Field(None, alias="to")
    bytes_per_s: PositiveFloat
    count: PositiveInt = 1

    @field_validator("bytes_per_s")
    @classmethod
    def _is_a_speed(cls, bytes_per_s: float) -> float:
        if bytes_per_s < _LEAST_BYTES_PER_S:
            raise ValueError(f"{bytes_per_s:g} bytes per second; is it in GB/s? Write 300e9 for 300 GB/s")
        return bytes_per_s

    @model_validator(mode="after")
    def _has_two_ends(self) -> Self:
        if (self.between is None) == (self.source is None) or (self.source is None) != (self.target is None):
            raise ValueError('give either "between": [a, b], for both directions, or "from": a and "to": b')
        return self

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """Source and target of each direction."""
        if self.between is not None:
            return (self.between, self.between[::-1])
        assert self.source is not None and self.target is not None
        return ((self.source, self.target),)


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ranks: (
        Annotated[int, Field(strict=True, gt=0, le=_MOST_RANKS)]
        | Annotated[tuple[_Vertex, ...], Field(min_length=1, max_length=_MOST_RANKS)]
    )
    switches: tuple[_Vertex, ...] = ()
    links: tuple[_WrittenLink, ...] = ()
    description: str = ""


def read_links(path: Path) -> LinkGraph:
    """Returns the graph in the file `path`; its ranks are numbered from 0 in the file's order, whatever their names.

    Raises:
        ProfileError: the file cannot be read or is not of the format, with the place in it; or some ranks do not reach
            others.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_once_each)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the links {path}: {error}", key="links") from error
    except json.JSONDecodeError as error:
        raise ProfileError(f"{path} is not JSON: {error.msg} in line {error.lineno}", key="links") from error
    except (RecursionError, ValueError) as error:
        raise ProfileError(
            f"{path} is nested too deep, or has a number that is too long: {error}", key="links"
        ) from error
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}", key=error.key) from error
    if not isinstance(content, dict):
        raise ProfileError(f"{path} holds no JSON object; it should be {_FORMAT}", key="links", expected=_FORMAT)
    if "nodes" in content:
        content = _of_node_link(path, content)
    try:
        written = _Written.model_validate(content)
    except ValidationError as error:
        raise _refusal(path, error) from error
    graph = _graph(path, written)
    check_connected(graph, str(path))
    return graph


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content: dict[str, object] = {}
    for key, value in pairs:
        if key in content:
            raise ProfileError(f"the key {key!r} stands twice in one object", key=key)
        content[key] = value
    return content


def _graph(path: Path, written: _Written) -> LinkGraph:
    names = tuple(str(n) for n in range(written.ranks)) if isinstance(written.ranks, int) else written.ranks
    number = {name: str(index) for index, name in enumerate(names)}
    for index, name in enumerate((*names, *written.switches)):
        if name in (*names, *written.switches)[:index] or (index >= len(names) and name in number.values()):
            raise ProfileError(f"{path}: two vertices have the name {name!r} (ranks are numbered from 0)", key="ranks")
    speeds: dict[tuple[str, str], float] = {}
    for index, link in enumerate(written.links):
        for ends in link.directions:
            _check_ends(path, index, ends, speeds, (*names, *written.switches))
            speeds[ends] = link.count * link.bytes_per_s
    links = tuple(
        Link(source=number.get(a, a), target=number.get(b, b), bytes_per_s=speed) for (a, b), speed in speeds.items()
    )
    return LinkGraph(tuple(number.values()), written.switches, links)


def _check_ends(
    path: Path, index: int, ends: tuple[str, str], speeds: dict[tuple[str, str], float], vertices: tuple[str, ...]
) -> None:
    unknown = next((end for end in ends if end not in vertices), None)
    wrong = ""
    if unknown is not None:
        wrong = f"{unknown!r} is neither a rank nor a switch; there are {', '.join(vertices)}"
    elif ends[0] == ends[1]:
        wrong = "both ends are the same"
    elif ends in speeds:
        wrong = 'these two are joined already; write parallel wires as one link with "count": their number'
    if wrong:
        raise ProfileError(
            f"{path}: links.{index} ({ends[0]} to {ends[1]}): {wrong}",
            key=f"links.{index}",
            value=ends,
            expected=_FORMAT,
        )


def _of_node_link(path: Path, content: dict[str, object]) -> dict[str, object]:
    """Returns a node-link JSON of networkx in our format: nodes are ranks, but for those with a true `switch`.

    Source: networkx 3.6, readwrite/json_graph/node_link.py: `nodes` with `id`; `edges` (before 3.4 `links`) with
    `source` and `target`; `directed`.
    """
    nodes, edges = content["nodes"], content.get("edges", content.get("links"))
    if (
        not isinstance(nodes, list)
        or not isinstance(edges, list)
        or not all(isinstance(n, dict) and "id" in n for n in nodes)
    ):
        raise ProfileError(
            f'{path}: a node-link JSON needs "nodes" with "id"s and "edges"; or write {_FORMAT}', key="nodes"
        )
    links: list[object] = []
    for edge in edges:
        ends = dict(edge) if isinstance(edge, dict) else {}
        source, target = ends.pop("source", None), ends.pop("target", None)
        ends.pop("key", None)
        both = {"from": source, "to": target} if content.get("directed") else {"between": (source, target)}
        links.append(both | ends)
    return {
        "ranks": tuple(node["id"] for node in nodes if not node.get("switch")),
        "switches": tuple(node["id"] for node in nodes if node.get("switch")),
        "links": links,
    }


def _refusal(path: Path, error: ValidationError) -> ProfileError:
    findings = error.errors()
    lines = [f"{_place(finding['loc'])}: {finding['msg'].removeprefix('Value error, ')}" for finding in findings]
    key = _place(findings[0]["loc"])
    return ProfileError(
        f"{path} is no graph of links:\n  " + "\n  ".join(dict.fromkeys(lines)) + f"\nIt should be {_FORMAT}",
        key=key,
        value=findings[0]["input"],
        expected=_FORMAT,
    )


def _place(parts: tuple[int | str, ...]) -> str:
    """Returns the dotted place in the file, without what pydantic adds for the branches of a union."""
    kept = parts[:1] if parts[:1] == ("ranks",) else parts
    return ".".join(str(part) for part in kept) or "the whole"
