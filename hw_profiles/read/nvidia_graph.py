"""Turns the matrix of `nvidia-smi topo -m` into a graph of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from hw_profiles.errors import ProfileError
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.read.link_speeds import SOCKETS, Speed, nvlink_speed, pcie_speed
from hw_profiles.read.nvidia_matrix import NvidiaMatrix
from hw_profiles.read.pcie_tree import RELATIONS, completed, pcie_tree
from hw_profiles.read.topology import Nic, Topology
from hw_profiles.schema import Link

_MAX_LINKS = 18
"""NVLinks that one GPU has at most. Source: NVIDIA H100 whitepaper, Blackwell datasheet."""
_C2C_BYTES_PER_S = 450e9
"""Source: NVIDIA Grace Hopper whitepaper: NVLink-C2C, 900 GB/s in both directions."""


def nvidia_topology(matrix: NvidiaMatrix, name: str, device_name: str) -> Topology:
    """Returns the topology that `matrix`, read from the dump called `name`, describes.

    GPUs that all have the same number of NVLinks to each other, more than they could have as cables, are joined by a
    switch; other NVLinks are wires between two GPUs. PCIe is left out where NVLink joins all GPUs, since NCCL does not
    use it there.

    Raises:
        ProfileError: a number of NVLinks that no GPU has.
    """
    counts, relations = _pairs(matrix, name)
    num_gpus = len(matrix.gpus)
    switches, links, used = _nvlinks(counts, device_name)
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(num_gpus))
    joined.add_edges_from(counts)
    if num_gpus > 1 and not nx.is_connected(joined):
        pcie = pcie_speed(device_name)
        everywhere = completed(num_gpus, relations, matrix.places)
        vertices, tree = pcie_tree(num_gpus, everywhere, pcie.bytes_per_s, SOCKETS.bytes_per_s)
        switches, links = (*switches, *vertices), (*links, *tree)
        used = (*used, pcie, *((SOCKETS,) if "SYS" in everywhere.values() else ()))
    nics = _nics(matrix)
    return Topology(
        vendor="nvidia",
        graph=LinkGraph(ranks=tuple(str(gpu) for gpu in range(num_gpus)), switches=switches, links=links),
        numa_nodes=matrix.numa_nodes,
        nics=nics,
        sources=(f"{name} (nvidia-smi topo -m)", *dict.fromkeys(speed.source for speed in used)),
        warnings=(
            *matrix.notes,
            *(f"{name}: assumed {speed.assumed}" for speed in dict.fromkeys(used) if speed.assumed),
            *_uneven(nics, num_gpus, name),
        ),
    )


def _pairs(matrix: NvidiaMatrix, name: str) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], str]]:
    """Returns the number of NVLinks of the pairs that have some (0 for C2C), and the PCIe relation of the others."""
    counts: dict[tuple[int, int], int] = {}
    relations: dict[tuple[int, int], str] = {}
    for i, gpu in enumerate(matrix.gpus):
        for j, other in enumerate(matrix.gpus[i + 1 :], start=i + 1):
            cell = matrix.cells[gpu, other]
            if cell in RELATIONS:
                relations[i, j] = cell
                continue
            counts[i, j] = 0 if cell == "C2C" else int(cell.removeprefix("NV"))
            if cell != "C2C" and not 1 <= counts[i, j] <= _MAX_LINKS:
                raise ProfileError(
                    f"{name}: {gpu} to {other} is {cell}, but a GPU has 1 to {_MAX_LINKS} NVLinks; are columns glued "
                    "together? Run `nvidia-smi topo -m > FILE` again",
                    key=f"{gpu}, {other}",
                    value=cell,
                )
    return counts, relations


def _nvlinks(
    counts: Mapping[tuple[int, int], int], device_name: str
) -> tuple[tuple[str, ...], tuple[Link, ...], tuple[Speed, ...]]:
    """Returns switches, links, and the speeds that they have."""
    joined: nx.Graph[int] = nx.Graph()
    joined.add_edges_from(counts)
    switches: list[str] = []
    links: list[Link] = []
    used: list[Speed] = []
    for gpus in sorted(sorted(part) for part in nx.connected_components(joined)):
        inside = {pair: count for pair, count in counts.items() if pair[0] in gpus}
        count = next(iter(inside.values()))
        is_even = len(inside) == len(gpus) * (len(gpus) - 1) // 2 and set(inside.values()) == {count}
        if is_even and count * (len(gpus) - 1) > _MAX_LINKS:
            speed = nvlink_speed(count, len(gpus), device_name)
            switch = f"nvswitch-{len(switches)}"
            switches.append(switch)
            links += [link for gpu in gpus for link in _both(str(gpu), switch, count * speed.bytes_per_s)]
        else:
            per_gpu = max(sum(count for pair, count in inside.items() if gpu in pair) for gpu in gpus)
            speed = nvlink_speed(per_gpu, len(gpus), device_name)
            for (i, j), count in inside.items():
                links += _both(str(i), str(j), count * speed.bytes_per_s if count else _C2C_BYTES_PER_S)
        used.append(speed)
    return tuple(switches), tuple(links), tuple(used)


def _both(one: str, other: str, bytes_per_s: float) -> tuple[Link, Link]:
    return (
        Link(source=one, target=other, bytes_per_s=bytes_per_s),
        Link(source=other, target=one, bytes_per_s=bytes_per_s),
    )


def _nics(matrix: NvidiaMatrix) -> tuple[Nic, ...]:
    """Returns the network cards; those as near to a GPU as any card is, by one switch or several, are for compute."""
    nearest: dict[str, tuple[str, tuple[int, ...]]] = {}
    for nic in matrix.nics:
        cells = [matrix.cells[gpu, nic] for gpu in matrix.gpus]
        known = [cell for cell in cells if cell in RELATIONS]
        if known:
            relation = min(known, key=RELATIONS.index)
            nearest[nic] = (relation, tuple(gpu for gpu, cell in enumerate(cells) if cell == relation))
    behind_switch = any(relation in ("PIX", "PXB") for relation, _ in nearest.values())
    best = min((RELATIONS.index(relation) for relation, _ in nearest.values()), default=0)
    nics = []
    for nic, (relation, gpus) in nearest.items():
        is_near = relation in ("PIX", "PXB") if behind_switch else RELATIONS.index(relation) == best
        interface = matrix.nic_interfaces.get(nic, nic)
        nics.append(Nic(name=interface, relation=relation, gpus=gpus, use="compute" if is_near else "other"))
    return tuple(nics)


def _uneven(nics: Sequence[Nic], num_gpus: int, name: str) -> tuple[str, ...]:
    """Says which GPUs have more network cards near them than others have."""
    near = [tuple(nic.name for nic in nics if nic.use == "compute" and gpu in nic.gpus) for gpu in range(num_gpus)]
    counts = [len(cards) for cards in near]
    if not any(counts) or min(counts) == max(counts):
        return ()
    each = "; ".join(f"GPU {gpu}: {', '.join(cards) or 'none'}" for gpu, cards in enumerate(near))
    return (
        f"{name}: network cards are not evenly attached ({each}); the profile counts with a node's network as a whole",
    )
