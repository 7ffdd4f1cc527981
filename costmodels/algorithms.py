"""Named algorithms of collectives: what each asks of every level's links, and how often it starts up there.

An algorithm is a sequence of phases. A phase takes what its slowest level takes for the bytes that enter one unit
there, over all groups that share its links (`costmodels.geometry`); phases follow each other, and start-ups are added:

    T = sum over phases of max over levels of (entering bytes / what the operation reaches of the unit's bandwidth)
      + sum over levels of start-ups x alpha_l

`port` is the bound that no algorithm beats on these links: only the bytes that must enter a unit do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sympy import Expr, Min, Symbol

from costmodels.engine import Operation
from costmodels.geometry import Geometry
from costmodels.lower import Formula, lower

Algorithm = Literal["port", "ring", "tree", "hierarchical", "ho_ring", "direct", "ring_all_reduce", "ring_then_gather"]


def _whole(name: str) -> Symbol:
    return Symbol(name, integer=True, positive=True)  # type: ignore[no-untyped-call]


MESSAGE_BYTES, UNITS, GROUPS, GROUP_RANKS, GROUP_SIZE, STAGES = (
    _whole(name) for name in ("B", "u", "q", "r", "n", "k")
)
"""B: message bytes. u: units of a level that a group spans. q: groups sharing one unit's links. r: ranks of a group in
one unit. n: ranks of a group. k: stages of a binary tree over the units, ceil(log2 u)."""
ARGUMENTS = (MESSAGE_BYTES, UNITS, GROUPS, GROUP_RANKS, GROUP_SIZE, STAGES)

_ALL = GROUPS * MESSAGE_BYTES
_SIDES = Min(2, STAGES)  # type: ignore[no-untyped-call]
_FROM_OTHER_UNITS = _ALL * (UNITS - 1) / UNITS
_FROM_OTHER_RANKS = _ALL * (GROUP_SIZE - 1) / GROUP_SIZE
_DIRECT = _ALL * GROUP_RANKS**2 * (UNITS - 1) / GROUP_SIZE

Spread = Literal["side by side", "in turn"]
"""Whether the levels of a phase work at once, or the phase is one for each level."""


Startups = Literal["ring", "units", "chain and tree", "tree", "peers"]
"""ring: hops of one ring through all ranks of the group that cross the level. units: of a ring through the units of
each level alone. tree: stages of a binary tree over the units; chain and tree: with a chain inside the innermost level.
peers: a message for each rank in other units."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase: bytes that enter one unit of a level, and how it starts up."""

    entering: Expr
    """Of the symbols above."""
    startups: tuple[Startups, ...]
    """Of more than one, the quickest counts: small messages need not go the way of large ones."""
    times: int = 1
    """How often it starts up: twice where a phase stands for two sweeps."""
    spread: Spread = "side by side"


_RING: dict[Operation, tuple[Phase, ...]] = {
    "all_gather": (Phase(_FROM_OTHER_RANKS, ("ring",)),),
    "reduce_scatter": (Phase(_FROM_OTHER_RANKS, ("ring",)),),
    "all_reduce": (Phase(2 * _FROM_OTHER_RANKS, ("ring",), times=2),),
    # A pipelined chain passes the whole message through every rank.
    "reduce": (Phase(_ALL, ("ring",)),),
    "broadcast": (Phase(_ALL, ("ring",)),),
}
_PORT: dict[Operation, tuple[Phase, ...]] = {
    "all_gather": (Phase(_FROM_OTHER_UNITS, ("ring",)),),
    "reduce_scatter": (Phase(_FROM_OTHER_UNITS, ("ring",)),),
    "all_reduce": (Phase(2 * _FROM_OTHER_UNITS, ("ring", "chain and tree"), times=2),),
    "reduce": (Phase(_ALL, ("ring",)),),
    "broadcast": (Phase(_ALL, ("ring",)),),
    "all_to_all": (Phase(_DIRECT, ("peers",)),),
}


def _of_levels(spread: Spread) -> dict[Operation, tuple[Phase, ...]]:
    """A collective of collectives: one over the units of each level, among ranks of equal place in them."""
    once = (Phase(_FROM_OTHER_UNITS, ("units",), spread=spread),)
    whole = (Phase(_ALL, ("units",), spread=spread),)
    return {
        "all_gather": once,
        "reduce_scatter": once,
        "all_reduce": (Phase(2 * _FROM_OTHER_UNITS, ("units",), times=2, spread=spread),),
        "reduce": whole,
        "broadcast": whole,
        # Two hops: what is for other nodes is first brought to the rank of equal place there.
        "all_to_all": (Phase(_FROM_OTHER_UNITS * GROUP_RANKS, ("units",), spread=spread),),
    }


PHASES: dict[Algorithm, dict[Operation, tuple[Phase, ...]]] = {
    "port": _PORT,
    "ring": _RING,
    "tree": {
        # Two trees share the message, and no unit is a leaf of both. Of two units each gets the other's half of each
        # tree. Of more, an inner one gets its half from two sides on the way up and once on the way down, and as a leaf
        # of the other tree once.
        "all_reduce": (Phase(_ALL * _SIDES, ("chain and tree",), times=2),),
        # Every rank that has the message sends all of it on, in each stage, through its unit's port. In turn that would
        # be k messages; if a rank's sends share the port until all end, k(k+1)/2: halfway, as over shaped links, where
        # two stages were 2.0 messages (256 KiB) to 2.8 (4 MiB).
        "broadcast": (Phase(_ALL * GROUP_RANKS * STAGES * (STAGES + 3) / 4, ("tree",)),),
    },
    "hierarchical": _of_levels("in turn"),
    "ho_ring": _of_levels("side by side"),
    "direct": {"all_to_all": (Phase(_DIRECT, ("peers",)),)},
    "ring_all_reduce": {"reduce_scatter": (Phase(2 * _FROM_OTHER_RANKS, ("ring",), times=2),)},
    "ring_then_gather": {
        "reduce": (
            Phase(_FROM_OTHER_RANKS, ("ring",)),
            Phase(_ALL * GROUP_RANKS * (UNITS - 1) / GROUP_SIZE, ("peers",)),
        )
    },
}
"""What each algorithm does for each operation that it can run."""


@dataclass(frozen=True, slots=True)
class Load:
    """What one phase asks of one level."""

    geometry: Geometry
    entering_bytes: float
    """Bytes that enter one unit, over all groups."""
    startups: tuple[int, ...]
    """For each way to start up that the phase has."""


def loads(
    algorithm: Algorithm, operation: Operation, spanned: Sequence[Geometry], message_bytes: float
) -> tuple[tuple[Load, ...], ...]:
    """Returns, for each phase in turn, its loads on the levels that work at once.

    Raises:
        ValueError: The algorithm cannot run the operation.
    """
    if operation not in PHASES[algorithm]:
        raise ValueError(f"{algorithm} cannot run {operation}")
    found: list[tuple[Load, ...]] = []
    for phase, entering in zip(PHASES[algorithm][operation], _LOWERED[algorithm, operation], strict=True):
        of_levels = tuple(
            Load(
                at,
                float(entering(message_bytes, at.units, at.groups, at.group_ranks, at.group_size, at.stages)),
                tuple(phase.times * _startups(kind, at) for kind in phase.startups),
            )
            for at in spanned
        )
        found += [of_levels] if phase.spread == "side by side" else [(load,) for load in of_levels]
    return tuple(found)


def _startups(kind: Startups, at: Geometry) -> int:
    if kind == "ring":
        return (at.units - 1) * (at.group_size // (at.group_ranks * at.units))
    if kind == "units" or (kind == "chain and tree" and at.level == 0):
        return at.units - 1
    return at.group_ranks * (at.units - 1) if kind == "peers" else at.stages


SOURCES: dict[Algorithm, str] = {
    "port": "the cut around one unit: what its ranks have not must enter it",
    "ring": "nccl-tests doc/PERFORMANCE.md: (n-1)/n of the message crosses each link of a ring, twice for an all-"
    "reduce; a broadcast and a reduce pass all of it along a chain; gloo/allgather.cc and allreduce.cc",
    "tree": "NCCL 2.4's double binary trees (NVIDIA developer blog, 2019), better than a ring on two nodes alone "
    "(NVIDIA/nccl issue 812: on 16 ranks S against 2 S 15/16); a broadcast of gloo: gloo/broadcast.cc, "
    "binomial, nearest first",
    "hierarchical": "one collective for each level, in turn: MiCS (arXiv 2205.00119) section 3.3, ZeRO++ (arXiv "
    "2306.10209) section 3.3",
    "ho_ring": "PaRO (arXiv 2310.06003), hierarchical overlapping ring: rings inside units and between them at once",
    "direct": "every rank sends to every other: NCCL's point-to-point all-to-all, gloo/alltoall.cc",
    "ring_all_reduce": "torch 2.13 ProcessGroupGloo: its reduce-scatter is an all-reduce, and a rank keeps its part",
    "ring_then_gather": "gloo/reduce.cc: a ring reduce-scatter, then the root gathers",
}
"""Where each algorithm's formulas are from."""

FORMULAS: dict[tuple[Algorithm, Operation], tuple[Formula, ...]] = {
    (algorithm, operation): tuple(
        Formula(
            f"bytes into one unit, {operation}, {algorithm}", phase.entering, ARGUMENTS, "bytes", SOURCES[algorithm]
        )
        for phase in phases
    )
    for algorithm, operations in PHASES.items()
    for operation, phases in operations.items()
}
"""Bytes that enter one unit of a level in each phase, over all groups of the kind; for printing too."""

_LOWERED = {
    (algorithm, operation): tuple(lower(phase.entering, ARGUMENTS, "none") for phase in phases)
    for algorithm, operations in PHASES.items()
    for operation, phases in operations.items()
}
"""Looked up by name, since hashing an expression costs more than calling its function."""
