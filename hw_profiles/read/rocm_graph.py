"""Turns the tables of `rocm-smi --showtopo` into a graph of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.read.link_speeds import GCD_LINKS, SOCKETS, Speed, fabric_speed, pcie_speed
from hw_profiles.read.pcie_tree import completed, pcie_tree
from hw_profiles.read.rocm_tables import RocmTables
from hw_profiles.read.topology import Topology
from hw_profiles.schema import Link

_DIFFERENT_SOCKETS = 3
"""Hops of two GPUs whose link leads over both processors; 2 over one.

Source: AMD Instinct MI200 system optimization guide, hardware verification.
"""


def rocm_topology(tables: RocmTables, name: str, device_name: str) -> Topology:
    """Returns the topology that `tables`, read from the dump called `name`, describe.

    XGMI pairs of the least weight are joined by a wire: the weight counts the hops, 15 each. Where not all are, the
    GPUs are dies of MI250X packages, two by two, with four links inside a package. PCIe is left out where XGMI joins
    all GPUs, since RCCL does not use it there.

    Source: ROCm/rocm-systems pull request 7372: how weights are made.
    """
    num_gpus = len(tables.gpus)
    direct = _direct(tables)
    links, used, notes = _fabric(tables, direct, device_name)
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(num_gpus))
    joined.add_edges_from(direct)
    switches: tuple[str, ...] = ()
    if num_gpus > 1 and not nx.is_connected(joined):
        pcie = pcie_speed(device_name)
        relations = _relations(tables)
        switches, tree = pcie_tree(num_gpus, relations, pcie.bytes_per_s, SOCKETS.bytes_per_s)
        links = (*links, *tree)
        used = (*used, pcie, *((SOCKETS,) if "SYS" in relations.values() else ()))
    return Topology(
        vendor="amd",
        graph=LinkGraph(ranks=tuple(str(gpu) for gpu in range(num_gpus)), switches=switches, links=links),
        numa_nodes=tables.numa_nodes,
        nics=(),
        sources=(
            f"{name} (rocm-smi --showtopo{', with its own table of bandwidths' if tables.bytes_per_s else ''})",
            *dict.fromkeys(speed.source for speed in used),
        ),
        warnings=(
            *tables.notes,
            *(f"{name}: assumed {text}" for text in notes),
            *(f"{name}: assumed {speed.assumed}" for speed in dict.fromkeys(used) if speed.assumed),
        ),
    )


def _direct(tables: RocmTables) -> tuple[tuple[int, int], ...]:
    fabric = [pair for pair, kind in tables.types.items() if kind == "XGMI"]
    least = min((tables.weights.get(pair, 0) for pair in fabric), default=0)
    return tuple(pair for pair in fabric if tables.weights.get(pair, 0) == least)


def _fabric(
    tables: RocmTables, direct: Sequence[tuple[int, int]], device_name: str
) -> tuple[tuple[Link, ...], tuple[Speed, ...], tuple[str, ...]]:
    """Returns the wires, the speeds that they have, and what is assumed of them."""
    joined: nx.Graph[int] = nx.Graph()
    joined.add_edges_from(direct)
    links: list[Link] = []
    used: list[Speed] = []
    notes: tuple[str, ...] = ()
    for gpus in sorted(sorted(part) for part in nx.connected_components(joined)):
        inside = [pair for pair in direct if pair[0] in gpus]
        is_meshed = len(inside) == len(gpus) * (len(gpus) - 1) // 2
        speed = fabric_speed(len(gpus), is_meshed, device_name)
        packages, more = ((), ()) if is_meshed else _packages(gpus, inside, tables.numa_nodes)
        for pair in inside:
            told = tables.bytes_per_s.get(pair)
            wires = GCD_LINKS if pair in packages else 1
            bytes_per_s = wires * speed.bytes_per_s if told is None else told
            links += [
                Link(source=str(one), target=str(other), bytes_per_s=bytes_per_s) for one, other in (pair, pair[::-1])
            ]
        if not all(pair in tables.bytes_per_s for pair in inside):
            used.append(speed)
            notes = (*notes, *more)
    return tuple(links), tuple(used), tuple(dict.fromkeys(notes))


def _packages(
    gpus: Sequence[int], inside: Sequence[tuple[int, int]], numa_nodes: Sequence[int | None]
) -> tuple[tuple[tuple[int, int], ...], tuple[str, ...]]:
    """Returns the pairs that are two dies of one package, and what is assumed of the wires.

    Dies of a package share a NUMA node that no other die has; where nodes are larger, dies are numbered pair by pair.
    """
    single = "one link between dies of different packages, where some pairs have two: the dump does not count links"
    by_node: dict[int | None, list[int]] = {}
    for gpu in gpus:
        by_node.setdefault(numa_nodes[gpu], []).append(gpu)
    pairs = tuple((dies[0], dies[-1]) for dies in by_node.values() if len(dies) == 2)
    if None not in by_node and len(pairs) * 2 == len(gpus) and all(pair in inside for pair in pairs):
        return pairs, (single,)
    pairs = tuple(zip(gpus[::2], gpus[1::2], strict=False))
    if len(gpus) % 2 == 0 and all(pair in inside for pair in pairs):
        return pairs, ("that neighbours in number (0 and 1, 2 and 3, ...) are dies of one package", single)
    return (), ("one link between each two GPUs joined by XGMI",)


def _relations(tables: RocmTables) -> Mapping[tuple[int, int], str]:
    """Returns PHB for pairs at one processor, SYS across; where only XGMI is shown, by what is known of the others."""
    places = tuple("" if node is None else f"NUMA node {node}" for node in tables.numa_nodes)
    known = {}
    for pair, kind in tables.types.items():
        if kind == "PCIE" and pair in tables.hops:
            known[pair] = "SYS" if tables.hops[pair] >= _DIFFERENT_SOCKETS else "PHB"
    return completed(len(tables.gpus), known, places)
