"""Makes a graph of links of what pairs of ranks were measured to reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hw_profiles.errors import ProfileError
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.schema import Link, Pair

_MOST_RANKS = 1024
"""A graph has a link per ordered pair of ranks."""


def graph_of_pairs(pairs: Sequence[Pair]) -> LinkGraph:
    """Returns the graph with a link per pair of ranks, measured alone.

    A pair that was measured in one direction is taken for both. Not every pair has to be measured: all pairs of the
    first node and all pairs of the nodes' first ranks (0, k, 2k, ...) do, where all nodes are alike; the others are
    then taken from their likes, so that the graph has every rank.

    Raises:
        ProfileError: there are none, a pair stands twice, or pairs are missing; says which.
    """
    if not pairs:
        raise ProfileError("no pairs of ranks were measured, so there is no graph of them", key="pairs")
    known = _both_directions(pairs)
    ranks = sorted({rank for ends in known for rank in ends})
    absent = [(a, b) for a in ranks for b in ranks if a < b and (a, b) not in known]
    if absent:
        node_size = 1 + max((b for a, b in known if a == 1), default=0)
        num_ranks = max(ranks) // node_size * node_size + node_size
        _check(known, num_ranks, node_size, absent)
        ranks = list(range(num_ranks))
        known = {(a, b): known[_like(a, b, node_size)] for a in ranks for b in ranks if a != b}
    links = tuple(
        Link(source=str(a), target=str(b), bytes_per_s=known[a, b]) for a in ranks for b in ranks if (a, b) in known
    )
    return LinkGraph(tuple(str(rank) for rank in ranks), (), links, measured_alone=True)


def _both_directions(pairs: Sequence[Pair]) -> dict[tuple[int, int], float]:
    known: dict[tuple[int, int], float] = {}
    for index, pair in enumerate(pairs):
        if pair.source == pair.target or (pair.source, pair.target) in known:
            raise ProfileError(
                f"pairs.{index}: from rank {pair.source} to rank {pair.target}; each two different ranks once",
                key=f"pairs.{index}",
                value=(pair.source, pair.target),
                expected="two different ranks, each pair once",
            )
        known[pair.source, pair.target] = pair.bytes_per_s
    for (source, target), bytes_per_s in list(known.items()):
        known.setdefault((target, source), bytes_per_s)
    return known


def _like(a: int, b: int, node_size: int) -> tuple[int, int]:
    """Returns the pair that stands for a and b: of the first node inside a node, of first ranks between nodes."""
    if a // node_size == b // node_size:
        return a % node_size, b % node_size
    return a - a % node_size, b - b % node_size


def _check(
    known: Mapping[tuple[int, int], float], num_ranks: int, node_size: int, absent: Sequence[tuple[int, int]]
) -> None:
    """Raises where the first node's pairs and those of the nodes' first ranks are not all known."""
    firsts = range(0, num_ranks, node_size)
    inside = [(a, b) for a in range(node_size) for b in range(a + 1, node_size)]
    between = [(a, b) for a in firsts for b in firsts if a < b]
    lacking = next((ends for ends in (*inside, *between) if ends not in known), None)
    if lacking is not None or num_ranks > _MOST_RANKS or node_size == 1:
        a, b = lacking or absent[0]
        size = f" (at most {_MOST_RANKS} ranks, these are {num_ranks})" if num_ranks > _MOST_RANKS else ""
        raise ProfileError(
            f"{len(absent)} pairs of the measured ranks are missing, among them {a} and {b}{size}: measure every "
            "pair, or those of the first node and those of the nodes' first ranks; or give the levels by --levels",
            key="pairs",
            value=len(absent),
            expected="every pair of ranks",
        )
