"""How many ranks and nodes a machine has, and the levels inside a node."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from costmodels.degrees import fill
from hw_profiles.errors import ProfileError
from hw_profiles.links.find_levels import find_levels
from hw_profiles.links.level_bandwidth import level_bandwidth
from hw_profiles.links.link_graph import Unit
from hw_profiles.links.wires import wires_of
from hw_profiles.read.collective_run import CollectiveRun
from hw_profiles.read.machine_links import NodeLinks
from hw_profiles.schema import HardwareProfile


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the levels inner first, and where they are from."""

    inner: tuple[int, ...]
    """Levels inside a node; at least one."""
    outer: tuple[int, ...]
    """Levels above nodes; empty for a single node of which no network is known."""
    bytes_per_s: tuple[float, ...]
    """Per inner level, what the wires carry into one unit; empty without a graph of links."""
    order: tuple[int, ...]
    """The graph's ranks in the order in which the profile numbers them; empty without a graph."""
    inner_source: str
    outer_source: str
    notes: tuple[str, ...]

    @property
    def ranks_per_node(self) -> int:
        """Ranks of one node."""
        return math.prod(self.inner)

    @property
    def sizes(self) -> tuple[int, ...]:
        """All levels, inner first."""
        return (*self.inner, *self.outer)


def find_shape(
    node: NodeLinks | None,
    runs: Sequence[CollectiveRun],
    levels: tuple[int, ...] | None,
    num_nodes: int | None,
    like: HardwareProfile | None,
) -> Shape:
    """Returns the machine's levels: those given, else those of the graph, else a node and a cluster by the runs.

    Args:
        node: the links of one node, if known.
        runs: benchmarks, on any part of the machine.
        levels: sizes inner first, of one node or of the whole machine, in place of found ones.
        num_nodes: in place of the most nodes of any run.
        like: a profile of such a machine; has the network's levels where a single node was read.

    Raises:
        ProfileError: the files and options contradict each other.
    """
    per_node, source = _ranks_per_node(node, runs, levels, num_nodes)
    _check_runs(runs, per_node, source)
    told = [run for run in runs if run.ranks_per_node == per_node]
    most = max((run.num_nodes for run in told), default=1)
    nodes, outer_source = (num_nodes, "--nodes") if num_nodes else (most, _largest(told, most))
    inner, given_outer = _split(levels, per_node, nodes, source) if levels else ((per_node,), None)
    is_told = num_nodes is not None or most > 1
    outer = given_outer or _outer(nodes, is_told, like)
    if like is not None and not is_told:
        outer_source = f"{like.name} (--like), as its default"
    if node is None or per_node == 1:
        notes = _whole_node(per_node, nodes, source) if node is None else ()
        return Shape(inner, outer, (), (), "--levels" if levels else source, outer_source, notes)
    if levels:
        order = tuple(range(per_node))
        return Shape(inner, outer, _bandwidths(node, inner, order), order, "--levels", outer_source, ())
    found = find_levels(node.graph)
    source = f"the links of {node.file}: clusters of equal size, found from the fastest links on"
    bytes_per_s = _bandwidths(node, found.sizes, found.order) if node.fast_graph is not None else found.bytes_per_s
    return Shape(found.sizes, outer, bytes_per_s, found.order, source, outer_source, found.notes)


def _whole_node(per_node: int, nodes: int, source: str) -> tuple[str, ...]:
    """Says what a run with one rank on each of several nodes leaves open."""
    if per_node > 1 or nodes == 1:
        return ()
    return (
        f"{source} ran one rank on each node: taken to be all that a node has; if it has more, give --topology, or "
        "a run with all of them",
    )


def _ranks_per_node(
    node: NodeLinks | None,
    runs: Sequence[CollectiveRun],
    levels: tuple[int, ...] | None,
    num_nodes: int | None,
) -> tuple[int, str]:
    """Returns the ranks of one node and who says so."""
    if node is not None:
        return len(node.graph.ranks), node.file
    fullest = max(runs, key=lambda run: run.ranks_per_node, default=None)
    if fullest is not None:
        return fullest.ranks_per_node, fullest.file
    if levels and math.prod(levels) % (num_nodes or 1) == 0:
        return math.prod(levels) // (num_nodes or 1), "--levels"
    raise ProfileError("nothing says how many ranks a node has; give --topology, --links or --collectives")


def _check_runs(runs: Sequence[CollectiveRun], per_node: int, source: str) -> None:
    for run in runs:
        if run.ranks_per_node > per_node:
            raise ProfileError(
                f"{source} is of a node with {per_node} ranks, but {run.file} ran {run.ranks_per_node} on each node; "
                "give files of one machine",
                key="ranks_per_node",
                value=run.ranks_per_node,
                expected=f"at most {per_node}",
            )


def _largest(runs: Sequence[CollectiveRun], num_nodes: int) -> str:
    return next((f"the hosts of {run.file}" for run in runs if run.num_nodes == num_nodes > 1), "one node was read")


def _split(
    levels: tuple[int, ...], per_node: int, nodes: int, source: str
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Returns the given levels inside a node, and those above, if given."""
    for end in range(1, len(levels) + 1):
        if math.prod(levels[:end]) == per_node and math.prod(levels[end:]) in (1, nodes):
            return levels[:end], levels[end:] or None
    sizes = ",".join(str(size) for size in levels)
    raise ProfileError(
        f"--levels {sizes} has {math.prod(levels)} ranks, but a node has {per_node} ({source}): the product must be "
        f"{per_node}, or {per_node * nodes} over all nodes ({nodes}), and whole nodes be at one of the levels",
        key="levels",
        value=sizes,
        expected=f"sizes with the product {per_node} or {per_node * nodes}",
    )


def _outer(nodes: int, is_told: bool, like: HardwareProfile | None) -> tuple[int, ...]:
    """Returns the levels above nodes: those of the profile that the machine is like, filled by `nodes`; else one.

    A single node has one only if a profile says what its network is like.

    Args:
        nodes: of the machine.
        is_told: whether a run or an option says so.
        like: the profile, if any.
    """
    above = tuple(level.size for level in like.levels[like.node_level + 1 :]) if like is not None else ()
    if like is None or len(above) < 2:
        return (nodes,) if nodes > 1 or above else ()
    if not is_told:
        return above
    filled = fill([*above[:-1], nodes], nodes)
    if filled is None:
        raise ProfileError(
            f"{nodes} nodes fill no whole units of the levels above nodes of {like.name} ({above[:-1]} "
            "and one of any size); give --levels, or another profile",
            key="num_nodes",
            value=nodes,
        )
    return filled


def _bandwidths(node: NodeLinks, sizes: Sequence[int], order: Sequence[int]) -> tuple[float, ...]:
    """Returns what carries messages into a unit of each level, units being neighbours in `order`.

    Where fast wires alone join the units, PCIe beside them carries nothing.

    Source: NCCL 2.28 src/graph/search.cc: channels are searched for along one type of path, the fastest that serves.
    """
    partitions: list[tuple[Unit, ...]] = [tuple((rank,) for rank in order)]
    for size in sizes:
        below = partitions[-1]
        merged = [below[start : start + size] for start in range(0, len(below), size)]
        partitions.append(tuple(tuple(sorted(rank for unit in part for rank in unit)) for part in merged))
    fast = wires_of(node.fast_graph) if node.fast_graph is not None else None
    everything = wires_of(node.graph)
    return tuple(
        (level_bandwidth(fast, units, parents) if fast is not None else 0.0)
        or level_bandwidth(everything, units, parents)
        for units, parents in pairwise(partitions)
    )
