"""Graphs of links of real machines, by their published wiring, and matrices of pairs as they are measured."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.schema import Link, Pair

GB = 1e9


def graph_of(num_ranks: int, joined: Mapping[tuple[str | int, str | int], float]) -> LinkGraph:
    """A graph of wires that carry `joined[a, b]` GB/s in both directions; vertices that are no rank are switches."""
    ranks = tuple(str(rank) for rank in range(num_ranks))
    ends = [(str(a), str(b), speed) for (a, b), speed in joined.items()]
    switches = tuple(dict.fromkeys(v for a, b, _ in ends for v in (a, b) if v not in ranks))
    links = [Link(source=s, target=t, bytes_per_s=speed * GB) for a, b, speed in ends for s, t in ((a, b), (b, a))]
    return LinkGraph(ranks, switches, tuple(links))


def clique(ranks: Sequence[int], speed: float) -> dict[tuple[str | int, str | int], float]:
    return {(a, b): speed for index, a in enumerate(ranks) for b in ranks[index + 1 :]}


def star(ranks: Sequence[int | str], switch: str, speed: float) -> dict[tuple[str | int, str | int], float]:
    return {(rank, switch): speed for rank in ranks}


def ring(num_ranks: int, speed: float) -> LinkGraph:
    return graph_of(num_ranks, {(rank, (rank + 1) % num_ranks): speed for rank in range(num_ranks)})


_ONE_LINK = ((0, 1), (0, 2), (1, 3), (4, 5), (4, 6), (5, 7), (2, 6), (3, 7))
_TWO_LINKS = ((0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5))


def dgx_1(numbers: Sequence[int] = range(8), link: float = 25) -> LinkGraph:
    """DGX-1 with V100s: a hybrid cube mesh, six NVLinks per GPU (NVIDIA/nccl issue 671 has the quad's counts)."""
    counts = dict.fromkeys(_ONE_LINK, 1) | dict.fromkeys(_TWO_LINKS, 2)
    return graph_of(8, {(numbers[a], numbers[b]): count * link for (a, b), count in counts.items()})


def mi250x(numbers: Sequence[int] = range(8)) -> LinkGraph:
    """Four MI250X: 4 links of 50 GB/s between the dies of a package, 2 or 1 between packages."""
    counts = {(0, 1): 4, (2, 3): 4, (4, 5): 4, (6, 7): 4, (0, 6): 2, (2, 4): 2, (1, 5): 2, (3, 7): 2}
    counts |= {(0, 2): 1, (1, 3): 1, (4, 6): 1, (5, 7): 1}
    return graph_of(8, {(numbers[a], numbers[b]): count * 50.0 for (a, b), count in counts.items()})


def sockets(
    groups: Sequence[Sequence[int]], pcie: float = 16, between: float = 20
) -> dict[tuple[str | int, str | int], float]:
    """Devices on the host bridges of their sockets, each socket joined to the others by one link."""
    wires: dict[tuple[str | int, str | int], float] = {}
    for number, group in enumerate(groups):
        wires |= star(group, f"host-bridge-{number}", pcie)
        wires[f"host-bridge-{number}", "sockets"] = between
    return wires


def node_of_pcie(num_ranks: int, per_socket: int, **speeds: float) -> LinkGraph:
    ranks = range(num_ranks)
    return graph_of(num_ranks, sockets([ranks[i : i + per_socket] for i in range(0, num_ranks, per_socket)], **speeds))


def measured(sizes: Sequence[int], speeds: Sequence[float], noise: float = 0.1, seed: int = 0) -> list[Pair]:
    """All pairs of a machine whose levels have these sizes and one pair's GB/s, each off by up to `noise`."""
    chance = random.Random(seed)
    num_ranks = 1
    for size in sizes:
        num_ranks *= size
    pairs = []
    for a in range(num_ranks):
        for b in range(num_ranks):
            if a != b:
                unit, level = 1, -1
                while a // unit != b // unit:
                    level += 1
                    unit *= sizes[level]
                speed = speeds[level] * GB * (1 + noise * chance.uniform(-1, 1))
                pairs.append(Pair(source=a, target=b, bytes_per_s=speed, latency_s=1e-5))
    return pairs
