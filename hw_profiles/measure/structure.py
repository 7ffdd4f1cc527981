"""The hierarchy that is measured: what was asked for, else what the topology, the cores or the pairs of ranks say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pydantic import BaseModel, ConfigDict

from hw_profiles.errors import ProfileError

_INSIDE = {1: ("node",), 2: ("package", "node"), 3: ("package", "socket", "node")}
_OUTSIDE = {0: (), 1: ("cluster",), 2: ("rack", "cluster"), 3: ("rack", "row", "cluster")}


class Structure(BaseModel):
    """Levels without numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sizes: tuple[int, ...]
    """Inner first."""
    names: tuple[str, ...]
    node_level: int
    decided: str
    """What decided on the levels, for people."""
    warnings: tuple[str, ...] = ()

    @property
    def edges(self) -> tuple[int, ...]:
        """Ranks in one unit of each level's next: products of the sizes."""
        return tuple(accumulate(self.sizes, lambda inner, size: inner * size))


@dataclass(frozen=True, slots=True)
class Finding:
    """What one source says of the levels among some units: ranks of a node, or nodes."""

    by: str
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    """Units in an order in which those of every level are contiguous."""
    notes: tuple[str, ...] = ()
    decides: bool = True
    """Whether it may decide; if not, it is only compared."""


def nodes_asked(
    world_size: int,
    on_hosts: tuple[int, int],
    num_nodes: int | None,
    ranks_per_node: int | None,
) -> tuple[int, int]:
    """Returns the number of nodes and of ranks on each: those of the hosts; ranks of one host split as asked for.

    Raises:
        ProfileError: what is asked for is not what was launched.
    """
    if num_nodes is None and ranks_per_node is None:
        return on_hosts
    ranks = ranks_per_node or world_size // (num_nodes or 1)
    nodes = num_nodes or world_size // ranks
    if nodes * ranks != world_size:
        raise ProfileError(
            f"{nodes} nodes x {ranks} ranks are not the {world_size} ranks launched",
            key="num_nodes",
            value=nodes,
            expected=f"a divisor of {world_size}",
        )
    if on_hosts[0] > 1 and (nodes, ranks) != on_hosts:
        raise ProfileError(
            f"the ranks run on {on_hosts[0]} hosts with {on_hosts[1]} each, not on {nodes} nodes of {ranks}; leave "
            "--nodes and --ranks-per-node out",
            key="num_nodes",
            value=nodes,
            expected=f"{on_hosts[0]}",
        )
    return nodes, ranks


def asked_structure(levels: Sequence[int], num_nodes: int, ranks_per_node: int) -> Structure:
    """Returns the levels that were asked for.

    Raises:
        ProfileError: their product is not the number of ranks, or no level ends at the node.
    """
    world_size = num_nodes * ranks_per_node
    edges = list(accumulate(levels, lambda inner, size: inner * size))
    text = ",".join(str(size) for size in levels)
    if edges[-1] != world_size:
        raise ProfileError(
            f"levels of {text} are {edges[-1]} ranks, but there are {world_size}; give sizes whose product is that",
            key="levels",
            value=tuple(levels),
            expected=f"a product of {world_size}",
        )
    if ranks_per_node not in edges:
        raise ProfileError(
            f"levels of {text} have units of {', '.join(str(edge) for edge in edges)} ranks, and none is a node of "
            f"{ranks_per_node} ranks; give sizes so that the product of the first few is {ranks_per_node}",
            key="levels",
            value=tuple(levels),
            expected=f"a level that ends at {ranks_per_node} ranks",
        )
    node_level = edges.index(ranks_per_node)
    return Structure(
        sizes=tuple(levels),
        names=level_names(node_level, len(levels)),
        node_level=node_level,
        decided=f"sizes given as --levels {text}",
    )


def found_structure(
    num_nodes: int, ranks_per_node: int, inside: Sequence[Finding], outside: Sequence[Finding]
) -> Structure:
    """Returns the levels that the first of the findings say, inside a node and between nodes.

    Levels whose units are no contiguous ranks are left out, since shard groups are contiguous.

    Args:
        num_nodes: nodes by host.
        ranks_per_node: ranks of each.
        inside: findings among the ranks of a node, the one that decides first.
        outside: findings among the nodes.
    """
    inner, by_inner, warned_inner = _decide(ranks_per_node, inside, "inside a node")
    outer, by_outer, warned_outer = _decide(num_nodes, outside, "between nodes")
    parts = ["nodes by host", by_inner and f"inside by {by_inner}", by_outer and f"between nodes by {by_outer}"]
    return Structure(
        sizes=inner + outer,
        names=level_names(len(inner) - 1, len(inner) + len(outer)),
        node_level=len(inner) - 1,
        decided=", ".join(part for part in parts if part),
        warnings=warned_inner + warned_outer,
    )


def _decide(count: int, findings: Sequence[Finding], where: str) -> tuple[tuple[int, ...], str, tuple[str, ...]]:
    usable = [finding for finding in findings if math.prod(finding.sizes) == count and count > 1]
    warnings = [
        f"levels {where}: {finding.by} speaks of {math.prod(finding.sizes)} units, but there are {count}: not used"
        for finding in findings
        if math.prod(finding.sizes) != count and count > 1
    ]
    deciding = [finding for finding in usable if finding.decides]
    sizes: tuple[int, ...] = (count,)
    by = ""
    if deciding:
        sizes, by = contiguous_sizes(deciding[0].sizes, deciding[0].order), deciding[0].by
        warnings += [f"levels {where}, by {by}: {note}" for note in deciding[0].notes]
    warnings += [
        f"levels {where}: {other.by} says {_times(other.sizes)}, but {by or 'one level is taken'}"
        f"{' says ' + _times(sizes) if by else ''}; --levels decides otherwise"
        for other in usable
        if other is not (deciding[0] if deciding else None) and other.sizes != sizes
    ]
    return sizes, by, tuple(warnings)


def contiguous_sizes(sizes: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Returns the sizes of those levels whose units are contiguous ranks; a level that is left out widens the next."""
    edges = [1]
    for edge in accumulate(sizes, lambda inner, size: inner * size):
        blocks = [order[first : first + edge] for first in range(0, len(order), edge)]
        if all(len({unit // edge for unit in block}) == 1 for block in blocks):
            edges.append(edge)
    return tuple(outer // inner for inner, outer in pairwise(edges))


def level_names(node_level: int, num_levels: int) -> tuple[str, ...]:
    """Returns the levels' names, inner first."""
    inside, outside = node_level + 1, num_levels - node_level - 1
    inner = _INSIDE.get(inside) or (*(f"package {number + 1}" for number in range(inside - 1)), "node")
    outer = _OUTSIDE.get(outside)
    return (*inner, *(outer if outer is not None else (f"cluster {number + 1}" for number in range(outside))))


def _times(sizes: Sequence[int]) -> str:
    return " x ".join(str(size) for size in sizes)
