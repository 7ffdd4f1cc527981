"""Finds the levels of the machine that the ranks run on. Runs on every rank."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from hw_profiles.errors import ProfileError
from hw_profiles.links.find_levels import find_levels
from hw_profiles.links.graph_of_pairs import graph_of_pairs
from hw_profiles.measure.asked import Asked
from hw_profiles.measure.hosts import Host, nodes_of, sizes_by_place
from hw_profiles.measure.ranks import Ranks
from hw_profiles.measure.structure import Finding, Structure, asked_structure, found_structure, nodes_asked
from hw_profiles.read.read_topology import read_topology
from hw_profiles.schema import Link, Pair

_TOPOLOGY_COMMANDS = (("nvidia-smi", "topo", "-m"), ("rocm-smi", "--showtopo"))
_COMMAND_TIMEOUT_S = 30
_PAIRS = "measured pairs of ranks"
_APART = 2.0
"""How many times faster an inner level must be to be spoken of where ranks move freely between cores."""


class Dump(BaseModel):
    """What this node's tool says of its wires."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str = ""
    """"" where there is no such tool."""
    text: str = ""
    trouble: str = ""


def topology_dump() -> Dump:
    """Returns the topology that the vendor's tool prints on this node."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible.split(",") != [str(number) for number in range(len(visible.split(",")))] and visible:
        return Dump(trouble=f"CUDA_VISIBLE_DEVICES={visible} numbers the devices otherwise than the tools do")
    for command in _TOPOLOGY_COMMANDS:
        name = " ".join(command)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
        except FileNotFoundError:
            continue
        except (OSError, subprocess.SubprocessError) as error:
            return Dump(trouble=f"{name}: {error}")
        if done.returncode == 0:
            return Dump(command=name, text=done.stdout)
        return Dump(trouble=f"{name} ended with {done.returncode}: {done.stderr.strip()[:200]}")
    return Dump()


def find_structure(asked: Asked, ranks: Ranks, hosts: Sequence[Host], dump: Dump, pairs: Sequence[Pair]) -> Structure:
    """Returns the levels: those asked for, else by hosts, topology, pinned cores and measured pairs.

    Raises:
        ProfileError: what is asked for contradicts the hosts, or the hosts have unequal numbers of ranks.
    """
    num_nodes, ranks_per_node = nodes_of_machine(asked, hosts)
    if asked.levels:
        return asked_structure(asked.levels, num_nodes, ranks_per_node)
    if num_nodes > 1 and is_one_host(hosts):
        # Logical nodes: nothing but the request sets them apart.
        structure = found_structure(num_nodes, ranks_per_node, (), ())
        return structure.model_copy(update={"decided": "logical nodes of one host, as asked for"})
    is_free = ranks.device.type == "cpu"
    place = sizes_by_place(hosts[:ranks_per_node])
    inside = [
        *(_by_dump(dump, list(range(ranks_per_node))) if dump.text else ()),
        *((Finding("the cores that ranks are pinned to", place, tuple(range(ranks_per_node))),) if place else ()),
        *_by_pairs(pairs, tuple(range(ranks_per_node)), decides=not is_free),
    ]
    outside = _by_pairs(pairs, tuple(range(0, num_nodes * ranks_per_node, ranks_per_node)), decides=True)
    structure = found_structure(num_nodes, ranks_per_node, inside, outside)
    trouble = (f"the topology was not read: {dump.trouble}",) if dump.trouble else ()
    return structure.model_copy(update={"warnings": trouble + structure.warnings})


def nodes_of_machine(asked: Asked, hosts: Sequence[Host]) -> tuple[int, int]:
    """Returns the number of nodes and of ranks on each.

    Raises:
        ProfileError: what is asked for contradicts the hosts, or the hosts have unequal numbers of ranks.
    """
    return nodes_asked(len(hosts), nodes_of(hosts), asked.num_nodes, asked.ranks_per_node)


def is_one_host(hosts: Sequence[Host]) -> bool:
    """Tells whether all ranks share a host."""
    return len({host.node for host in hosts}) == 1


def wires(dump: Dump, device_name: str, ranks_per_node: int) -> tuple[tuple[Link, ...], str, tuple[str, ...]]:
    """Returns the wires inside a node, where they are from, and what was assumed; none where no dump tells of them."""
    if not dump.text:
        return (), "", ()
    try:
        topology = read_topology(dump.text, device_name)
    except ProfileError as error:
        return (), "", (f"{dump.command}: {error}",)
    if topology.num_gpus != ranks_per_node:
        return (), "", ()
    return topology.graph.links, "; ".join((dump.command, *topology.sources)), topology.warnings


def _by_dump(dump: Dump, units: Sequence[int]) -> list[Finding]:
    try:
        found = find_levels(read_topology(dump.text).graph)
    except ProfileError as error:
        return [Finding(dump.command, (), (), (str(error),), decides=False)]
    if len(found.order) != len(units):
        return [Finding(dump.command, found.sizes, found.order, decides=False)]
    return [Finding(dump.command, found.sizes, found.order, found.notes)]


def _by_pairs(pairs: Sequence[Pair], units: tuple[int, ...], *, decides: bool) -> list[Finding]:
    """Returns the levels among some ranks by what they were measured to send each other, if all pairs were."""
    own = [pair for pair in pairs if pair.source in units and pair.target in units]
    if len(units) < 3 or len(own) != len(units) * (len(units) - 1):
        return []
    found = find_levels(graph_of_pairs(own))
    if not decides and found.bytes_per_s[0] < _APART * found.bytes_per_s[-1]:
        return []
    return [Finding(_PAIRS, found.sizes, found.order, found.notes, decides)]
