"""Turns the matrix of `nvidia-smi topo -m` into a graph of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from hw_profiles.errors import ProfileError
from hw_profiles.links.link_graph import LinkGraph
from hw_profiles.read.link_speeds import MAX_NVLINKS, SOCKETS, Speed, nvlink_speed, nvlinks_of, pcie_speed
from hw_profiles.read.nvidia_matrix import NvidiaMatrix
from hw_profiles.read.pcie_tree import RELATIONS, completed, pcie_tree
from hw_profiles.read.topology import Nic, Topology
from hw_profiles.schema import Link

_C2C_BYTES_PER_S = 450e9
"""Source: NVIDIA Grace Hopper whitepaper: NVLink-C2C, 900 GB/s in both directions."""


def nvidia_topology(matrix: NvidiaMatrix, name: str, device_name: str) -> Topology:
    """Returns the topology that `matrix`, read from the dump called `name`, describes.

    GPUs that have NVLinks to all others, more than they could have as cables, are joined by a switch; other NVLinks are
    wires between two GPUs. PCIe is left out where NVLink joins all GPUs, since NCCL does not
    use it there.

    Raises:
        ProfileError: a number of NVLinks that no GPU has.
    """
    most = nvlinks_of(device_name)
    counts, relations = _pairs(matrix, MAX_NVLINKS, name)
    num_gpus = len(matrix.gpus)
    switches, links, used, broken = _nvlinks(counts, most, device_name)
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
            *(f"{name}: {text}" for text in broken),
            *_uneven(nics, num_gpus, name),
        ),
    )


def _pairs(matrix: NvidiaMatrix, most: int, name: str) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], str]]:
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
            if cell != "C2C" and not 1 <= counts[i, j] <= most:
                raise ProfileError(
                    f"{name}: {gpu} to {other} is {cell}, but a GPU has 1 to {most} NVLinks; are columns glued "
                    "together? Run `nvidia-smi topo -m > FILE` again",
                    key=f"{gpu}, {other}",
                    value=cell,
                )
    return counts, relations


def _nvlinks(
    counts: Mapping[tuple[int, int], int], most: int, device_name: str
) -> tuple[tuple[str, ...], tuple[Link, ...], tuple[Speed, ...], tuple[str, ...]]:
    """Returns switches, links, the speeds that they have, and what is odd about them.

    Args:
        counts: NVLinks of each pair (i < j) that has some.
        most: NVLinks that one GPU has at most.
        device_name: what the GPUs are, "" if unknown.
    """
    joined: nx.Graph[int] = nx.Graph()
    joined.add_edges_from(counts)
    switches: list[str] = []
    links: list[Link] = []
    used: list[Speed] = []
    odd: list[str] = []
    for gpus in sorted(sorted(part) for part in nx.connected_components(joined)):
        inside = {pair: count for pair, count in counts.items() if pair[0] in gpus}
        per_gpu = {gpu: [count for pair, count in inside.items() if gpu in pair] for gpu in gpus}
        is_mesh = len(inside) == len(gpus) * (len(gpus) - 1) // 2
        if is_mesh and max(sum(own) for own in per_gpu.values()) > most:
            # Through a switch, a pair is shown with the links of the GPU that has fewer.
            own_links = {gpu: max(own) for gpu, own in per_gpu.items()}
            speed = nvlink_speed(max(own_links.values()), len(gpus), device_name)
            switch = f"nvswitch-{len(switches)}"
            switches.append(switch)
            links += [link for gpu in gpus for link in _both(str(gpu), switch, own_links[gpu] * speed.bytes_per_s)]
            odd += _lacking(own_links)
        else:
            speed = nvlink_speed(max(sum(own) for own in per_gpu.values()), len(gpus), device_name)
            for (i, j), count in inside.items():
                links += _both(str(i), str(j), count * speed.bytes_per_s if count else _C2C_BYTES_PER_S)
        used.append(speed)
    return tuple(switches), tuple(links), tuple(used), tuple(odd)


def _lacking(own_links: Mapping[int, int]) -> list[str]:
    """Says which GPUs have fewer links to the switch than others: broken ones, most likely."""
    most = max(own_links.values())
    return [
        f"GPU {gpu} has {own} NVLinks to the switch where others have {most}: {most - own} are down; every collective "
        "waits for it"
        for gpu, own in own_links.items()
        if own < most
    ]


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
