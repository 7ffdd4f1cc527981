"""The tree of PCIe switches, host bridges and sockets that a matrix of relations between GPUs describes."""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx

from hw_profiles.schema import Link

RELATIONS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Nearest first: one PCIe switch; several; one host bridge; one NUMA node; across NUMA nodes.

Source: the legend of `nvidia-smi topo -m`.
"""
_JOINTS = ("pcie-switch", "pcie-bridge", "host-bridge", "numa-node", "sockets")
"""The vertex where two GPUs of each relation meet."""


def pcie_tree(
    num_gpus: int, relations: Mapping[tuple[int, int], str], pcie_bytes_per_s: float, sockets_bytes_per_s: float
) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """Returns the inner vertices and the links of the tree, one direction each.

    Every unit is joined to the vertex above it by as many lanes as one slot has; a host bridge has a slot per unit
    below it. Sockets are joined by `sockets_bytes_per_s` each.

    Args:
        num_gpus: the leaves, named `0`, `1`, ...
        relations: for each pair (i < j), one of RELATIONS.
        pcie_bytes_per_s: 16 lanes, one direction.
        sockets_bytes_per_s: out of one socket or NUMA node, one direction.
    """
    tops = {gpu: str(gpu) for gpu in range(num_gpus)}
    slots = {str(gpu): 1 for gpu in range(num_gpus)}
    vertices: list[str] = []
    links: list[Link] = []
    for reach, joint in enumerate(_JOINTS):
        near: nx.Graph[int] = nx.Graph()
        near.add_nodes_from(range(num_gpus))
        near.add_edges_from(pair for pair, name in relations.items() if RELATIONS.index(name) <= reach)
        for gpus in sorted(sorted(part) for part in nx.connected_components(near)):
            below = tuple(dict.fromkeys(tops[gpu] for gpu in gpus))
            if len(below) < 2:
                continue
            vertex = f"{joint}-{sum(name.startswith(joint) for name in vertices)}"
            vertices.append(vertex)
            slots[vertex] = 1 if joint.startswith("pcie") else sum(slots[unit] for unit in below)
            for unit in below:
                bytes_per_s = sockets_bytes_per_s if joint == "sockets" else slots[unit] * pcie_bytes_per_s
                links.append(Link(source=unit, target=vertex, bytes_per_s=bytes_per_s))
                links.append(Link(source=vertex, target=unit, bytes_per_s=bytes_per_s))
            tops.update(dict.fromkeys(gpus, vertex))
    return tuple(vertices), tuple(links)


def completed(
    num_gpus: int, known: Mapping[tuple[int, int], str], places: tuple[str, ...]
) -> dict[tuple[int, int], str]:
    """Returns a relation for every pair, also for those of which the dump only shows a faster link.

    Where two GPUs are both near a third one, they are near each other; else the place (NUMA node or cores) decides.
    """
    found: dict[tuple[int, int], str] = {}
    for i in range(num_gpus):
        for j in range(i + 1, num_gpus):
            if (i, j) in known:
                found[i, j] = known[i, j]
                continue
            same = places[i] == places[j] and places[i] != ""
            reach = [RELATIONS.index("NODE" if same else "SYS")]
            for k in range(num_gpus):
                pairs = (min(i, k), max(i, k)), (min(j, k), max(j, k))
                if k not in (i, j) and all(pair in known for pair in pairs):
                    reach.append(max(RELATIONS.index(known[pair]) for pair in pairs))
            found[i, j] = RELATIONS[min(reach)]
    return found
