"""Fills the cost table: the exact costs of every strategy, micro-batch and recomputation, as whole ns and bytes.

For each option the costs of all its recomputations are computed by the same functions that predict a plan
(`costmodels.step`, `costmodels.memory`). Where they are affine in what is recomputed, one row holds them all; where
an engine's settings couple the groups, each recomputation gets a row of its own. So a total read from the table is the
exact total, never an approximation of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from costmodels.communication import communication_time
from costmodels.compute import compute_time
from costmodels.engine import Assignment, Engine
from costmodels.memory import moments_bytes
from costmodels.places import Int64s
from costmodels.strategy import Recompute, StepShape, Strategy
from costmodels.workload import Workload
from planner.cost_table import Cost, CostTable, Option, Recomputed, undominated
from planner.machine import Machine

MAX_GROUPS = 4
"""More classes of recomputable blocks than this share the last boolean: each boolean doubles the work of a row."""

_ALLOWED: dict[str, tuple[bool, ...]] = {"auto": (False, True), "none": (False,), "full": (True,)}

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
) -> CostTable:
    """Returns the costs of all strategies that the engine can run, at every shape.

    Args:
        workload: The traced step.
        engine: Whose traffic and memory; strategies that it refuses are left out.
        machine: Links and devices.
        strategies: Candidates, the same for all classes, in the order that breaks ties.
        shapes: Micro-batches, in the order that breaks ties.
        recompute: `auto`, `none` or `full`.
        budget_bytes: Device memory that a step may use.
    """
    groups = _groups(workload)
    may_recompute = tuple(_ALLOWED[recompute] for _ in groups)
    empty = CostTable(engine.name, workload.num_classes, groups, (), budget_bytes)
    options = tuple(
        option
        for strategy in strategies
        for shape in shapes
        if engine.refusal(workload, (strategy,) * workload.num_classes, shape) is None
        for option in _options(workload, engine, machine, empty, strategy, shape, may_recompute)
    )
    return CostTable(engine.name, workload.num_classes, groups, options, budget_bytes)


def _groups(workload: Workload) -> tuple[tuple[int, ...], ...]:
    classes = sorted({block.block_class for block in workload.blocks if block.recomputable})
    alone, together = classes[: MAX_GROUPS - 1], classes[MAX_GROUPS - 1 :]
    return (*((number,) for number in alone), *([tuple(together)] if together else []))


def _options(
    workload: Workload,
    engine: Engine,
    machine: Machine,
    table: CostTable,
    strategy: Strategy,
    shape: StepShape,
    may_recompute: tuple[tuple[bool, ...], ...],
) -> tuple[Option, ...]:
    """Returns one option where the costs are affine in what is recomputed, else one for each recomputation."""
    exact: dict[Recomputed, _Exact] = {}
    for recomputed in product(*may_recompute):
        assignment = table.assignment(strategy, recomputed)
        if engine.refusal(workload, assignment, shape) is None:
            exact[recomputed] = _exact(workload, engine, machine, assignment, shape)
    joined = _affine(strategy, shape, may_recompute, exact)
    if joined is not None:
        return (joined,)
    return tuple(
        _row(strategy, shape, tuple((value,) for value in recomputed), (costs, *[costs] * len(recomputed)))
        for recomputed, costs in exact.items()
    )


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


def _exact(workload: Workload, engine: Engine, machine: Machine, assignment: Assignment, shape: StepShape) -> _Exact:
    """Computes the bounds of each phase (see `costmodels.step.exposed_time`) and the bytes of each moment."""
    compute = compute_time(workload, assignment, shape, machine.speed)
    sent = communication_time(
        engine.traffic(workload, assignment, shape), machine.network, shape.num_micro_batches, machine.speed
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
    bounds_ns = (
        *(forward_ns - each_ns for each_ns in hidden_in_forward_ns),
        *(backward_ns - each_ns for each_ns in hidden_in_backward_ns),
        compute.update_ns + sent.duration.control_ns,
    )
    held = engine.memory(workload, assignment, shape)
    return _Exact(np.array(bounds_ns, np.int64), moments_bytes(workload, held, assignment, shape))
