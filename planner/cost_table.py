"""The cost table: what each choice costs in whole nanoseconds and whole bytes. All that the solver sees.

A choice is one option (a strategy with its micro-batch) and, for each group of classes of blocks that can be
recomputed, whether it is. Within an option every cost is affine in these booleans, so that the solver needs only linear
constraints.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costmodels.engine import Assignment
from costmodels.strategy import StepShape, Strategy

Recomputed = tuple[bool, ...]
"""One boolean per entry of `CostTable.groups`."""

Amount = Literal["time", "memory"]
"""What can be least: ns of a step, or bytes at its peak."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Whole ns or bytes that depend on what is recomputed: constant + sum over groups of by_group x recomputed."""

    constant: int
    by_group: tuple[int, ...] = ()
    """One addend per entry of `CostTable.groups`; negative where recomputation saves."""

    def at(self, recomputed: Recomputed) -> int:
        """Returns the cost when exactly these groups are recomputed."""
        return self.constant + sum(addend for addend, chosen in zip(self.by_group, recomputed, strict=True) if chosen)

    @property
    def least(self) -> int:
        """The smallest value over all recomputations."""
        return self.constant + sum(min(0, addend) for addend in self.by_group)

    @property
    def greatest(self) -> int:
        """The largest value over all recomputations."""
        return self.constant + sum(max(0, addend) for addend in self.by_group)


@dataclass(frozen=True, slots=True)
class Option:
    """A strategy shared by all classes, at one micro-batch."""

    strategy: Strategy
    """Degrees for all classes; its `recompute` is none: the booleans decide."""
    shape: StepShape
    may_recompute: tuple[tuple[bool, ...], ...]
    """For each entry of `CostTable.groups`, the values that can be chosen: ascending, one or two."""
    phases_ns: tuple[tuple[Cost, ...], ...]
    """The step takes the sum over phases of the greatest of the phase's bounds."""
    memory_bytes: tuple[Cost, ...]
    """Device memory at the moments of the step that can be its peak: the peak is the greatest."""

    def recomputations(self) -> tuple[Recomputed, ...]:
        """Returns every recomputation that can be chosen, in the order that breaks ties."""
        return tuple(product(*self.may_recompute))

    def step_ns(self, recomputed: Recomputed) -> int:
        """Returns the nanoseconds of one optimizer step."""
        return sum(max(bound.at(recomputed) for bound in bounds) for bounds in self.phases_ns)

    def peak_bytes(self, recomputed: Recomputed) -> int:
        """Returns the greatest bytes of device memory in the step."""
        return max(cost.at(recomputed) for cost in self.memory_bytes)

    def amount(self, amount: Amount, recomputed: Recomputed) -> int:
        """Returns the ns of a step or the bytes at its peak."""
        return self.step_ns(recomputed) if amount == "time" else self.peak_bytes(recomputed)

    def least(self, amount: Amount) -> int:
        """Returns an amount that no recomputation is below."""
        if amount == "memory":
            return max(cost.least for cost in self.memory_bytes)
        return sum(max(bound.least for bound in bounds) for bounds in self.phases_ns)


@dataclass(frozen=True, slots=True)
class CostTable:
    """All options of one engine for one model, job and machine."""

    engine: str
    num_classes: int
    """Classes of equal blocks in the model."""
    groups: tuple[tuple[int, ...], ...]
    """Classes whose blocks can be recomputed, ascending; those of one group are recomputed together or not at all."""
    options: tuple[Option, ...]
    """In the order that breaks ties."""
    budget_bytes: int
    """Bytes of device memory that a step may use."""
    left_out: tuple[tuple[Strategy, int], ...] = ()
    """Strategies with choices that need more memory than is asked for, and the number of these: they have no option."""

    @property
    def num_strategies(self) -> int:
        """Number of choices in the table, those included that are left out of its options."""
        of_options = sum(math.prod(len(values) for values in option.may_recompute) for option in self.options)
        return of_options + sum(number for _, number in self.left_out)

    def has(self, strategy: Strategy) -> bool:
        """Whether there are choices of a strategy, be it that all are left out."""
        return any(option.strategy == strategy for option in self.options) or strategy in dict(self.left_out)

    @property
    def enough_bytes(self) -> int:
        """Bytes of device memory in which every choice fits."""
        return max((cost.greatest for option in self.options for cost in option.memory_bytes), default=0)

    def corner(self, amount: Amount, budget_bytes: int) -> tuple[Option, Recomputed] | None:
        """Returns the least of the choices within the budget that recompute nothing or all they may."""
        corners = [
            (option.amount(amount, recomputed), number, recomputed)
            for number, option in enumerate(self.options)
            for recomputed in (tuple(v[0] for v in option.may_recompute), tuple(v[-1] for v in option.may_recompute))
            if option.peak_bytes(recomputed) <= budget_bytes
        ]
        _, number, recomputed = min(corners, default=(0, -1, ()))
        return (self.options[number], recomputed) if corners else None

    def assignment(self, strategy: Strategy, recomputed: Recomputed) -> Assignment:
        """Returns a choice as one strategy per class of the model."""
        choices = (strategy, replace(strategy, recompute="full"))
        full = [number for group, chosen in zip(self.groups, recomputed, strict=True) if chosen for number in group]
        return tuple(choices[number in full] for number in range(self.num_classes))

    def where(self, keep: Callable[[Option], bool]) -> CostTable:
        """Returns the table of the options that `keep` accepts, and nothing that is left out."""
        return replace(self, options=tuple(option for option in self.options if keep(option)), left_out=())


def undominated(costs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the costs that can be the greatest, in order, once each.

    Left out is every cost that another one is at least as great as, whatever is recomputed.

    Args:
        costs: a row for each: its constant, then its addends (see `Cost`). There may be thousands.
    """
    addends = costs[:, 1:]
    _, kinds = np.unique(addends, axis=0, return_inverse=True)
    # Of those with the same addends the greatest, of equals the first: few remain to be compared with each other.
    order = np.lexsort((np.arange(len(costs)), -costs[:, 0], kinds.reshape(-1)))
    kept = costs[np.sort(order[np.flatnonzero(np.diff(kinds.reshape(-1)[order], prepend=-1))])]
    # The greatest where nothing, one group or all are recomputed leave few others, which are compared each with each.
    corners = np.column_stack([kept[:, 0], kept[:, :1] + kept[:, 1:], kept.sum(axis=1)])
    kept = _without_dominated(kept, np.unique(corners.argmax(axis=0)))
    return _without_dominated(kept, np.arange(len(kept)))


def _without_dominated(costs: NDArray[np.int64], pivots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the costs that none of the pivots, which are rows of them, is at least as great as; all are different."""
    above = costs[pivots, None, 0] - costs[None, :, 0]
    for column in costs[:, 1:].T:
        above += np.minimum(0, column[pivots, None] - column[None, :])
    above[np.arange(len(pivots)), pivots] = -1
    found: NDArray[np.int64] = costs[(above < 0).all(axis=0)]
    return found
