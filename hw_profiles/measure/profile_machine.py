"""Measures the machine it runs on: as one of launched ranks (torchrun, srun), or by starting ranks here itself."""

from __future__ import annotations

import math
import os
import socket
from pathlib import Path

from hw_profiles.errors import ProfileError
from hw_profiles.fit.fit import fit
from hw_profiles.measure.asked import PATIENCE_S, Asked
from hw_profiles.measure.launched import launched
from hw_profiles.measure.run_ranks import Progress, run_ranks
from hw_profiles.measure.vendor_peak import vendor_peak
from hw_profiles.save import check_writable
from hw_profiles.schema import HardwareProfile


def profile_machine(
    num_nodes: int | None = None,
    ranks_per_node: int | None = None,
    quick: bool = False,
    progress: Progress | None = None,
    *,
    levels: tuple[int, ...] | None = None,
    journal: Path | None = None,
    fresh: bool = False,
    patience_s: float = PATIENCE_S,
) -> HardwareProfile | None:
    """Returns the measured profile; under a launcher, None on every rank but the first.

    Under torchrun or srun the launched ranks measure together, and nodes are the hosts. Otherwise num_nodes x
    ranks_per_node ranks, or as many as `levels` has, are started on this machine (default: one node with a rank per
    accelerator, or one rank without any): logical nodes, for planning and trying out on one host.

    Args:
        num_nodes: nodes of the profile.
        ranks_per_node: ranks of each.
        quick: fewer sizes and repetitions.
        progress: called with what is measured next and which part of all is done, on the first rank; a part of None
            marks a note to be kept.
        levels: sizes of the levels, inner first, in place of those found.
        journal: a file that keeps each piece once it is measured; an interrupted measurement goes on from it. It stays
            until `hw_profiles.save.save` has written the profile.
        fresh: measures all anew.
        patience_s: how long a message may take; a rank that hangs is named within that and some ten seconds more.

    Raises:
        ProfileError: the ranks are not as many as asked for, or a file cannot be written.
        RanksFailed: ranks could not be started, failed, or hang.
        SystemExit: ranks failed, and another rank's process tells the user.
    """
    own = launched(os.environ)
    asked = Asked(
        num_nodes=num_nodes,
        ranks_per_node=ranks_per_node,
        levels=levels,
        quick=quick,
        journal=None if journal is None else str(journal),
        fresh=fresh,
        patience_s=patience_s,
    )
    if own is None:
        if journal is not None:
            check_writable(journal)
        places, asked = _places_here(asked)
    else:
        _refuse_broken_nodes(int(own["WORLD_SIZE"]), ranks_per_node, is_first=own["RANK"] == "0")
        places = [own]
    measurement = run_ranks(places, asked, progress or _silent, is_alone=own is None)
    if measurement is None:
        return None
    return fit(measurement, vendor_peak(measurement.devices) if measurement.kind == "cuda" else None)


def _silent(_text: str, _part: float | None) -> None:
    pass


def _places_here(asked: Asked) -> tuple[list[dict[str, str]], Asked]:
    """Returns the variables of each rank to start here, and what is asked with its nodes and ranks told."""
    world_size = _num_ranks(asked)
    ranks_per_node = asked.ranks_per_node or world_size // (asked.num_nodes or 1)
    with socket.socket() as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        port = endpoint.getsockname()[1]
    places = [
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        for rank in range(world_size)
    ]
    told = {"num_nodes": world_size // ranks_per_node, "ranks_per_node": ranks_per_node}
    return places, asked.model_copy(update=told)


def _num_ranks(asked: Asked) -> int:
    if asked.levels is None:
        return (asked.num_nodes or 1) * (asked.ranks_per_node or _default_ranks())
    world_size = math.prod(asked.levels)
    num_nodes, ranks_per_node = asked.num_nodes, asked.ranks_per_node
    if (num_nodes and world_size % num_nodes) or (ranks_per_node and world_size % ranks_per_node):
        raise ProfileError(
            f"levels of {','.join(str(size) for size in asked.levels)} are {world_size} ranks and no whole nodes "
            f"({num_nodes or 'any number of'} nodes of {ranks_per_node or 'any number of'} ranks)",
            key="levels",
            value=asked.levels,
            expected="levels that fit --nodes and --ranks-per-node",
        )
    return world_size


def _default_ranks() -> int:
    from hw_profiles.measure.ranks import num_accelerators

    return max(num_accelerators(), 1)


def _refuse_broken_nodes(world_size: int, ranks_per_node: int | None, *, is_first: bool) -> None:
    """Raises where no number of nodes fits, before any rank waits for others; one of them tells the user."""
    if ranks_per_node is None or world_size % ranks_per_node == 0:
        return
    if not is_first:
        raise SystemExit(2)
    raise ProfileError(
        f"{world_size} launched ranks are not whole nodes of {ranks_per_node}: every node needs equally many ranks",
        key="ranks_per_node",
        value=ranks_per_node,
        expected=f"a divisor of {world_size}",
    )
