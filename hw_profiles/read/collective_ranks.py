"""Where the ranks of a benchmark run: the lines `#  Rank  0 Group  0 Pid 123 on host device  0 [0x07] NVIDIA A100`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw_profiles.errors import ProfileError
from hw_profiles.read.terminal_text import Line

_RANK = re.compile(
    r"Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[([0-9a-fA-Fx:.]+)\]\s*(.*?)\s*$"
)
"""Source: nccl-tests src/util.cu (writeDeviceReport); versions before 2022 print no group."""
_EACH = re.compile(r"nThread:?\s*(\d+)\s+nGpus:?\s*(\d+)")
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?)")
_MPI = (
    "nccl-tests was built without MPI, or the launcher does not speak its MPI. Build it with `make MPI=1 "
    "MPI_HOME=...`, start it with that MPI's mpirun or `srun --mpi=pmix`, and see one list of ranks"
)


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes and groups of one run."""

    num_nodes: int
    ranks_per_node: int
    degree_from: int
    degree_to: int
    device_names: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Rank:
    rank: int
    group: int
    process: str
    host: str
    slot: str
    device_name: str


def read_placement(lines: Sequence[Line], name: str) -> Placement:
    """Returns where the ranks of the run in `lines` of the file called `name` are.

    Raises:
        ProfileError: no such lines, each rank alone, ranks missing, nodes of different sizes, or groups that are none.
    """
    found = [_rank(match) for line in lines if (match := _RANK.search(line.text))]
    if not found:
        raise ProfileError(
            f"{name} has no lines `#  Rank  0 ... on HOST device ...`, which say how many ranks ran where; give "
            "the whole output, from `# nThread` on",
            key="ranks",
        )
    _check_together(found, lines, name)
    ranks, notes = _filled(found, name)
    _check_processes(found, len(ranks), lines, name)
    hosts, more = _hosts(ranks)
    counts = Counter(hosts)
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{host}: {count}" for host, count in counts.items())
        raise ProfileError(
            f"{name}: hosts with different numbers of ranks ({each}); a machine's nodes are alike: run it with "
            "as many ranks on each, or give the whole output if lines are missing",
            key="ranks_per_node",
        )
    per_node = next(iter(counts.values()))
    degrees = _degrees([ranks[rank].group for rank in range(len(ranks))], name)
    in_blocks = all(len(set(hosts[start : start + per_node])) == 1 for start in range(0, len(hosts), per_node))
    if not in_blocks:
        more = (*more, f"{name}: neighbouring ranks are on different hosts; only groups of all ranks are the same then")
        if degrees != (1, len(hosts)):
            raise ProfileError(
                f"{name}: ranks of one host are not neighbours, so its groups are none of a plan", key="ranks"
            )
    return Placement(
        num_nodes=len(counts),
        ranks_per_node=per_node,
        degree_from=degrees[0],
        degree_to=degrees[1],
        device_names=tuple(dict.fromkeys(each.device_name for each in ranks.values() if each.device_name)),
        notes=(*notes, *more),
    )


def _rank(match: re.Match[str]) -> _Rank:
    rank, group, process, host, device, bus, device_name = match.groups()
    return _Rank(int(rank), int(group or 0), process, host, f"{device} [{bus}]", device_name)


def _check_together(found: Sequence[_Rank], lines: Sequence[Line], name: str) -> None:
    """Refuses a run whose processes did not know of each other."""
    times = Counter(each.rank for each in found)
    alone = max(times.values())
    if alone > 1:
        own = len(times)
        raise ProfileError(
            f"{name}: Rank 0 stands {times[0] or alone} times: {alone} processes ran for themselves, with {own} "
            f"{'rank' if own == 1 else 'ranks'} each, and nothing was exchanged between them. {_MPI}",
            key="ranks",
            value=alone,
        )
    if len(found) == 1:
        average = next((match for line in lines if (match := _AVERAGE.search(line.text))), None)
        if average is not None and float(average.group(1)) > 0:
            raise ProfileError(
                f"{name}: one line of a rank is there, but the average bus bandwidth is {average.group(1)}, which "
                "takes more ranks: lines are missing; give the whole output",
                key="ranks",
            )
        raise ProfileError(
            f"{name}: a single rank ran alone, so that nothing was exchanged (Avg bus bandwidth 0). Start it with "
            f"`-g 8` for 8 GPUs of one node, or one process per GPU; if many were started: {_MPI}",
            key="ranks",
            value=1,
        )


def _filled(found: Sequence[_Rank], name: str) -> tuple[dict[int, _Rank], tuple[str, ...]]:
    """Returns a line for every rank; a lost one between two of the same host and group is taken to be there too."""
    ranks = {each.rank: each for each in found}
    lost = [rank for rank in range(max(ranks) + 1) if rank not in ranks]
    if not lost:
        return ranks, ()
    for rank in lost:
        before = ranks.get(rank - 1)
        after = next((ranks[later] for later in range(rank + 1, max(ranks) + 1) if later in ranks), None)
        if before is None or after is None or (before.host, before.group) != (after.host, after.group):
            raise ProfileError(
                f"{name}: the lines of {len(lost)} ranks are missing ({', '.join(str(each) for each in lost[:8])}), so "
                "that their hosts are unknown; give the whole output",
                key="ranks",
            )
        ranks[rank] = _Rank(rank, before.group, before.process, before.host, "", before.device_name)
    return ranks, (f"{name}: lines of {len(lost)} ranks are missing; taken to be on the hosts of their neighbours",)


def _check_processes(found: Sequence[_Rank], num_ranks: int, lines: Sequence[Line], name: str) -> None:
    """Refuses a run of which the last ranks' lines are lost: each process has nThread x nGpus ranks."""
    told = next((match for line in lines if (match := _EACH.search(line.text))), None)
    if told is None:
        return
    each = int(told.group(1)) * int(told.group(2))
    num_processes = len({(one.host, one.process) for one in found})
    expected = each * num_processes
    # Where no ranks share a process, the header is not of these lines.
    if num_processes < len(found) and num_ranks < expected:
        raise ProfileError(
            f"{name}: lines of {num_ranks} ranks are there, but processes with {each} ranks each (nThread x nGpus) "
            f"make {expected}: lines are missing; give the whole output",
            key="ranks",
            value=num_ranks,
            expected=str(expected),
        )


def _hosts(ranks: Mapping[int, _Rank]) -> tuple[list[str], tuple[str, ...]]:
    """Returns each rank's host. Containers can share a name: then the same device comes once per host."""
    hosts = [ranks[rank].host for rank in range(len(ranks))]
    slots = Counter(each.slot for each in ranks.values() if each.slot)
    if len(set(hosts)) > 1 or max(slots.values()) == 1:
        return hosts, ()
    seen: Counter[str] = Counter()
    told = []
    for rank in range(len(ranks)):
        slot = ranks[rank].slot
        told.append(f"{hosts[rank]} #{seen[slot]}")
        seen[slot] += 1
    count = max(slots.values())
    return told, (
        f"all ranks call their host {hosts[0]}, and each device comes {count} times: taken for {count} nodes",
    )


def _degrees(groups: Sequence[int], name: str) -> tuple[int, int]:
    """Returns the degrees between which the groups run: NCCL_TESTS_SPLIT makes several at once."""
    world, num_groups = len(groups), len(set(groups))
    size = world // num_groups
    colours = [tuple(rank for rank in range(world) if groups[rank] == group) for group in dict.fromkeys(groups)]
    if colours == [tuple(range(first, first + size)) for first in range(0, world, size)]:
        return 1, size
    if colours == [tuple(range(first, world, num_groups)) for first in range(num_groups)]:
        return num_groups, world
    raise ProfileError(
        f"{name}: {num_groups} groups over {world} ranks that are neither blocks of neighbours nor equally strided; "
        "split with NCCL_TESTS_SPLIT='DIV n' or 'MOD n'",
        key="groups",
    )
