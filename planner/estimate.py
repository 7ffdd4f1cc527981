"""Fills the cost table: the exact costs of every strategy, micro-batch and recomputation, as whole ns and bytes.

For each option the costs of all its recomputations are computed by the same functions that predict a plan
(`costmodels.step`, `costmodels.memory`). Where they are affine in what is recomputed, one row holds them all; where
an engine's settings couple the groups, each recomputation gets a row of its own. So a total read from the table is the
exact total, never an approximation of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from costmodels.communication import communication_time
from costmodels.compute import compute_time
from costmodels.engine import Assignment, Engine
from costmodels.least_peak import least_peak_bytes
from costmodels.memory import moments_bytes
from costmodels.places import Int64s
from costmodels.strategy import Recompute, StepShape, Strategy
from costmodels.workload import Workload
from planner.choices import HasRoom, always, assignments, may_recompute, no_choices
from planner.cost_table import Cost, CostTable, Option, Recomputed, undominated
from planner.machine import Machine

PHASES = ("forward", "backward", "alone")
"""Forward with the update's messages, and backward with the boundary's, overlap compute with communication; the
update's compute stands alone."""


NUM_BOUNDS = (3, 3, 1)
"""Bounds of each phase."""


class _Exact(NamedTuple):
    """The costs of one recomputation of one option."""

    bounds_ns: Int64s
    """Of all phases, joined."""
    memory_bytes: Int64s
    """Of each moment."""


def estimate(
    workload: Workload,
    engine: Engine,
    machine: Machine,
    strategies: Iterable[Strategy],
    shapes: tuple[StepShape, ...],
    recompute: Recompute | str,
    budget_bytes: int,
    within_bytes: int | None = None,
    has_room: HasRoom = always,
) -> CostTable:
    """Returns the costs of all strategies that the engine can run, at every shape.

    With `within_bytes` the table answers every question about choices that need no more as the whole one does: what
    surely needs more is only counted, and what is found to need more has no time.

    Args:
        workload: The traced step.
        engine: Whose traffic and memory; strategies that it refuses are left out.
        machine: Links and devices.
        strategies: Candidates, the same for all classes, in the order that breaks ties.
        shapes: Micro-batches, in the order that breaks ties.
        recompute: `auto`, `none` or `full`.
        budget_bytes: Device memory that a step may use.
        within_bytes: Device memory beyond which choices are left out; None: none is.
        has_room: Whether a strategy can be looked at in a shape at all: the others are not counted.
    """
    empty = no_choices(workload, engine, budget_bytes)
    asked = _Asked(workload, engine, machine, empty, may_recompute(empty, recompute), within_bytes)
    options: list[Option] = []
    left_out: dict[Strategy, int] = {}
    for strategy in strategies:
        for shape in shapes:
            if has_room(strategy, shape):
                found, num_left_out = _options(asked, strategy, shape)
                options += found
                if num_left_out:
                    left_out[strategy] = left_out.get(strategy, 0) + num_left_out
    return replace(empty, options=tuple(options), left_out=tuple(left_out.items()))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all options have in common."""

    workload: Workload
    engine: Engine
    machine: Machine
    table: CostTable
    may_recompute: tuple[tuple[bool, ...], ...]
    within_bytes: int | None


def _options(asked: _Asked, strategy: Strategy, shape: StepShape) -> tuple[tuple[Option, ...], int]:
    """Returns one option where the costs are affine in what is recomputed, else one for each recomputation.

    And the number of recomputations that are left out, since they need too much memory.
    """
    exact: dict[Recomputed, _Exact] = {}
    num_left_out = 0
    for recomputed, assignment in assignments(
        asked.workload, asked.engine, asked.table, strategy, shape, asked.may_recompute
    ):
        costs = _exact(asked, assignment, shape)
        if costs is None:
            num_left_out += 1
        else:
            exact[recomputed] = costs
    joined = _affine(strategy, shape, asked.may_recompute, exact)
    if joined is not None:
        return (joined,), num_left_out
    alone = (
        _row(strategy, shape, tuple((value,) for value in recomputed), (costs, *[costs] * len(recomputed)))
        for recomputed, costs in exact.items()
    )
    return tuple(alone), num_left_out


def _affine(
    strategy: Strategy,
    shape: StepShape,
    may_recompute: tuple[tuple[bool, ...], ...],
    exact: dict[Recomputed, _Exact],
) -> Option | None:
    """Returns the option whose costs are the base's plus one addend per group, or None where these are not exact."""
    base = tuple(values[0] for values in may_recompute)
    singles = [(*base[:i], values[-1], *base[i + 1 :]) for i, values in enumerate(may_recompute)]
    if any(recomputed not in exact for recomputed in product(*may_recompute)):
        return None
    for recomputed, costs in exact.items():
        changed = [exact[single] for single, its, mine in zip(singles, recomputed, base, strict=True) if its != mine]
        if not all(_is_sum(*parts) for parts in zip(costs, exact[base], *changed, strict=True)):
            return None
    return _row(strategy, shape, may_recompute, (exact[base], *(exact[single] for single in singles)))


def _is_sum(costs: Int64s, base: Int64s, *changed: Int64s) -> bool:
    """Returns whether the costs are those of the base and what each change adds to it."""
    if any(len(other) != len(costs) for other in (base, *changed)):
        return False
    return np.array_equal(costs, base + sum((other - base for other in changed), np.zeros_like(base)))


def _row(
    strategy: Strategy, shape: StepShape, may_recompute: tuple[tuple[bool, ...], ...], corners: tuple[_Exact, ...]
) -> Option:
    """Returns the option through the base corner and the corners that differ from it in one group each.

    Where a group has no choice, its corner is the base; its addend then counts for nothing.
    """
    phases = iter(_costs(_rows([corner.bounds_ns for corner in corners])))
    return Option(
        strategy,
        shape,
        may_recompute,
        phases_ns=tuple(tuple(islice(phases, number)) for number in NUM_BOUNDS),
        memory_bytes=_costs(undominated(_rows([corner.memory_bytes for corner in corners]))),
    )


def _rows(corners: list[Int64s]) -> Int64s:
    """Returns a row for each cost: the base, and what each changed group adds to it."""
    base, *changed = corners
    return np.column_stack([base, *(corner - base for corner in changed)])


def _costs(rows: Int64s) -> tuple[Cost, ...]:
    return tuple(Cost(constant, tuple(addends)) for constant, *addends in rows.tolist())


def _exact(asked: _Asked, assignment: Assignment, shape: StepShape) -> _Exact | None:
    """Computes the bounds of each phase (see `costmodels.step.exposed_time`) and the bytes of each moment.

    None where these are too many: what is quickest to count comes first, and what takes longest last.
    """
    workload, engine, limit_bytes = asked.workload, asked.engine, asked.within_bytes
    if limit_bytes is not None:
        least = engine.least_memory(workload, assignment, shape)
        if least_peak_bytes(workload, least, assignment, shape) > limit_bytes:
            return None
    memory_bytes = moments_bytes(workload, engine.memory(workload, assignment, shape), assignment, shape)
    if limit_bytes is not None and memory_bytes.max() > limit_bytes:
        return None
    return _Exact(np.array(_bounds_ns(asked, assignment, shape), np.int64), memory_bytes)


def _bounds_ns(asked: _Asked, assignment: Assignment, shape: StepShape) -> tuple[int, ...]:
    machine = asked.machine
    compute = compute_time(asked.workload, assignment, shape, machine.speed)
    sent = communication_time(
        asked.engine.traffic(asked.workload, assignment, shape), machine.network, shape.num_micro_batches, machine.speed
    )
    forward_ns = compute.forward_ns + sent.duration.forward_ns + sent.duration.update_ns
    backward_ns = compute.backward_ns + sent.duration.backward_ns + sent.duration.boundary_ns
    hidden_in_forward_ns = (
        compute.forward_overlappable_ns,
        sent.forward_overlappable_ns + sent.update_overlappable_ns,
        sent.forward_overlappable_ns + compute.first_forward_overlappable_ns,
    )
    hidden_in_backward_ns = (
        compute.backward_overlappable_ns,
        sent.backward_overlappable_ns + sent.boundary_overlappable_ns,
        sent.backward_overlappable_ns + compute.last_backward_overlappable_ns,
    )
    return (
        *(forward_ns - each_ns for each_ns in hidden_in_forward_ns),
        *(backward_ns - each_ns for each_ns in hidden_in_backward_ns),
        compute.update_ns + sent.duration.control_ns,
    )
