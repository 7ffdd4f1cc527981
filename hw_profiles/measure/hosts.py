"""Which ranks share a node, by what each says of its host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from hw_profiles.errors import ProfileError


class Host(BaseModel):
    """Where one rank runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    boot: str = ""
    """Of the kernel: hosts that bear the same name differ in it."""
    network: str = ""
    """Of the network namespace, where ranks of two of them reach each other over the network only."""
    package: int | None = None
    """The processor package that the rank is pinned to; None where it may run on any."""
    numa: int | None = None
    """The NUMA node that the rank is pinned to."""

    @property
    def node(self) -> tuple[str, str, str]:
        """What ranks of one node have in common."""
        return (self.name, self.boot, self.network)


def nodes_of(hosts: Sequence[Host]) -> tuple[int, int]:
    """Returns the number of nodes and of ranks on each, from each rank's host.

    Raises:
        ProfileError: nodes have unequal numbers of ranks, or the ranks of a node are not numbered one after the other.
    """
    runs = [(node, len(list(ranks))) for node, ranks in groupby(hosts, key=lambda host: host.node)]
    counts: dict[tuple[str, str, str], int] = {}
    for node, count in runs:
        counts[node] = counts.get(node, 0) + count
    shown = ", ".join(f"{count} on {name}" for name, count in _named(counts))
    if len(set(counts.values())) > 1:
        raise ProfileError(
            f"every node needs equally many ranks: there are {shown}; start the same number on each",
            key="ranks_per_node",
            expected="equally many on each node",
        )
    if len(runs) > len(counts):
        raise ProfileError(
            f"the ranks of a node must be numbered one after the other, but they change host {len(runs) - 1} times "
            f"among {len(counts)} hosts ({shown}); start them node by node (srun --distribution=block)",
            key="ranks_per_node",
            expected="ranks in the order of nodes",
        )
    return len(counts), runs[0][1]


def _named(counts: dict[tuple[str, str, str], int]) -> list[tuple[str, int]]:
    """Returns names for people, with what tells hosts of one name apart."""
    names = [node[0] for node in counts]
    return [
        (node[0] if names.count(node[0]) == 1 else f"{node[0]} ({node[2] or node[1]})", count)
        for node, count in counts.items()
    ]


def sizes_by_place(hosts: Sequence[Host]) -> tuple[int, ...] | None:
    """Returns the sizes of the levels inside a node, inner first, by the places its ranks are pinned to.

    None where ranks may run anywhere, or where places have unequal numbers of ranks.
    """
    count = len(hosts)
    runs = [_run([host.numa for host in hosts]), _run([host.package for host in hosts])]
    filled = sorted({run for run in runs if run is not None and 1 < run < count})
    if not filled or any(outer % inner for inner, outer in pairwise(filled)):
        return None
    edges = [1, *filled, count]
    return tuple(outer // inner for inner, outer in pairwise(edges))


def _run(places: Sequence[int | None]) -> int | None:
    """Returns how many ranks in a row share a place, if each place has equally many."""
    runs = [(place, len(list(ranks))) for place, ranks in groupby(places)]
    lengths = {length for _, length in runs}
    if None in places or len(lengths) != 1 or len({place for place, _ in runs}) != len(runs):
        return None
    return lengths.pop()


def place_of_cores(cores: Sequence[int], system: Path = Path("/sys/devices/system")) -> tuple[int | None, int | None]:
    """Returns the processor package and the NUMA node that all of `cores` are on; None where they are on several."""
    packages = {_number(system / f"cpu/cpu{core}/topology/physical_package_id") for core in cores}
    nodes = [
        (int(folder.name.removeprefix("node")), numbers_of((folder / "cpulist").read_text()))
        for folder in sorted(system.glob("node/node[0-9]*"))
        if (folder / "cpulist").is_file()
    ]
    own = [number for number, members in nodes if set(cores) <= set(members)]
    several = len(nodes) > 1
    return packages.pop() if len(packages) == 1 else None, own[0] if own and several else None


def _number(path: Path) -> int | None:
    return int(path.read_text()) if path.is_file() else None


def numbers_of(text: str) -> tuple[int, ...]:
    """Returns the numbers of a list such as `0-3,8`, as Linux writes them."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)
