"""What each strategy costs each block, at one micro-batch: all that the solver of per-class choices sees.

For an engine whose blocks can differ (`costmodels.fsdp`), every cost of a step is a sum over its blocks, each by its
own strategy, or a maximum of such sums. Within a block it is a sum again: of what (p, g, o) cost, of what s costs, and
of what recomputation costs. Equal blocks form a group, and a choice says for each group how many of its blocks have
each strategy and how many are recomputed.

Which block has which follows from an order, so that no two choices differ by names alone. The first blocks are the
recomputed ones: a forward that runs again finds least alive there. Strategies come in the order of their manners
(`costmodels.fsdp.holds.Manner`), those that hold most last, where it is held the shortest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from costmodels.compute import Computed
from costmodels.fsdp.holds import Gathered, Manner, manner_of
from costmodels.strategy import StepShape, Strategy

_ORDER: tuple[Gathered, ...] = ("anew", "kept", "whole")


class Sent(NamedTuple):
    """Nanoseconds of messages, all micro-batches of a step together."""

    duration_ns: int = 0
    bare_ns: int = 0
    """What of it compute cannot hide in any case."""
    longest_ns: int = 0
    """What else is exposed of the longest message, if no other block's is longer."""


@dataclass(frozen=True, slots=True)
class DegreesCost:
    """What (p, g, o) cost one block, in whole ns and bytes."""

    param_degree: int
    grad_degree: int
    optim_degree: int
    forward: Sent
    reduced: Sent
    """In every micro-batch."""
    boundary: Sent
    spread: Sent
    """What the update changed, beside the next step's first forward."""
    optimizer_ns: int
    rest_bytes: int
    """Model states."""
    update_bytes: int
    spread_bytes: int
    """Held while this block's parameters are spread; the largest of any block counts."""
    output_bytes: int
    """Held in backward for the output of a reduction; the largest of any block counts."""

    @property
    def is_reduced(self) -> bool:
        """Whether gradients are reduced as they come."""
        return self.grad_degree > 1


@dataclass(frozen=True, slots=True)
class SecondaryCost:
    """What gathering over s for backward costs one block whose parameters are sharded over p."""

    param_degree: int
    secondary_degree: int
    gathered: Gathered
    backward: Sent
    """Gathered in every micro-batch."""
    rest_bytes: int
    """Of a second copy, where there is one."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Equal blocks with what can be chosen for each."""

    block_class: int
    blocks: tuple[int, ...]
    """Indices into `Workload.blocks`, in order of execution."""
    recomputable: bool
    least_recomputed: int
    most_recomputed: int
    again: Computed
    """The forward of one block that runs again, in one micro-batch."""
    degrees: tuple[DegreesCost, ...]
    secondaries: tuple[SecondaryCost, ...]

    @property
    def manners(self) -> tuple[Manner, ...]:
        """The manners that its blocks can have, in their order."""
        reduced = {each.param_degree: {False: False, True: False} for each in self.degrees}
        for each in self.degrees:
            reduced[each.param_degree][each.is_reduced] = True
        found = {
            Manner(each.gathered, is_reduced)
            for each in self.secondaries
            for is_reduced in (False, True)
            if reduced.get(each.param_degree, {}).get(is_reduced)
        }
        return tuple(sorted(found, key=_place))


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes that depend on what is chosen for one block."""

    block: int
    by_manner: tuple[int, ...]
    """One per entry of its group's `manners`."""
    if_recomputed: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A sum of bytes: constant + what depends on blocks + what differs where all blocks that can be are recomputed."""

    constant: int = 0
    terms: tuple[Term, ...] = ()
    if_all_recomputed: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A segment of the step: what comes to stay before it, and the moments in it that can be the step's peak."""

    change: Held
    """Added to what is alive, for this segment and all that follow."""
    moments: tuple[Held, ...]
    """Beyond what is alive, model states and outputs of reductions."""
    is_backward: bool


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The costs of all per-class choices at one micro-batch."""

    shape: StepShape
    groups: tuple[BlockGroup, ...]
    forward: Computed
    """Of all blocks, in one micro-batch."""
    backward: Computed
    """The same, without recomputation."""
    stretches: tuple[Stretch, ...]
    always_bytes: int
    """Held whatever is chosen: the model's buffers."""


class GroupChoice(NamedTuple):
    """What is chosen for one group."""

    strategies: tuple[tuple[Strategy, int], ...]
    """Without recomputation, each with its number of blocks."""
    num_recomputed: int


Choice = tuple[GroupChoice, ...]
"""One for each group."""


def strategies_of(table: BlockTable, choice: Choice) -> dict[int, Strategy]:
    """Returns the strategy of each block, by its index in `Workload.blocks`."""
    chosen: dict[int, Strategy] = {}
    for group, (strategies, num_recomputed) in zip(table.groups, choice, strict=True):
        in_order = [each for each, number in in_order_of_manners(strategies) for _ in range(number)]
        for number, (block, strategy) in enumerate(zip(group.blocks, in_order, strict=True)):
            chosen[block] = replace(strategy, recompute="full") if number < num_recomputed else strategy
    return chosen


def in_order_of_manners(strategies: Sequence[tuple[Strategy, int]]) -> Iterator[tuple[Strategy, int]]:
    """Yields strategies in the order in which equal blocks take them."""
    yield from sorted(strategies, key=lambda each: (_place(manner_of(each[0])), each[0]))


def _place(manner: Manner) -> tuple[int, bool]:
    return (_ORDER.index(manner.gathered), manner.is_reduced)
