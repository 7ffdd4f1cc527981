"""What each strategy costs each block, at one micro-batch: all that the solver of per-class choices sees.

For an engine whose blocks can differ (`costmodels.fsdp`), every cost of a step is a sum over its blocks, each by its
own strategy, or a maximum of such sums. Within a block it is a sum again: of what (p, o), (g, o) and (p, s) cost, and
of what recomputation costs; where shards are padded, (g, o) costs more for some p than for others. Equal blocks form
a group, and a choice says for each group how many of its blocks have each strategy and how many are recomputed. Only
of what is held of some kinds the most of any block of a group counts for all (`Apart`): there a total is a bound, and
exact where all blocks of a group have one strategy.

Which block has which follows from an order, so that no two choices differ by names alone. The first blocks are the
recomputed ones: a forward that runs again finds least alive there. Strategies come in the order of their manners
(`costmodels.fsdp.holds.Manner`), those that hold most last, where it is held the shortest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from costmodels.compute import Computed
from costmodels.fsdp.holds import Gathered, Kind, Manner, Reducing, manner_of, reducing_of
from costmodels.strategy import StepShape, Strategy

_ORDER: tuple[Gathered, ...] = ("anew", "kept", "whole")
REDUCINGS: tuple[Reducing, ...] = ("never", "once", "each")

Apart = tuple[tuple[Kind, int], ...]
"""Bytes of some kinds that a block holds beyond what its manner says; of a group's, the most of any counts for all."""


class Sent(NamedTuple):
    """Nanoseconds of messages, all micro-batches of a step together."""

    duration_ns: int = 0
    bare_ns: int = 0
    """What of it compute cannot hide in any case."""
    longest_ns: int = 0
    """What else is exposed of the longest message, if no other block's is longer."""


@dataclass(frozen=True, slots=True)
class ParamCost:
    """What (p, o) cost one block, in whole ns and bytes."""

    param_degree: int
    optim_degree: int
    forward: Sent
    """Gathered in every micro-batch."""
    spread: Sent
    """What the update changed, beside the next step's first forward."""
    optimizer_ns: int
    rest_bytes: int
    """Parameters and optimizer states."""
    apart: Apart = ()
    quantized: bool = False
    """Parameters are gathered as int8."""


@dataclass(frozen=True, slots=True)
class GradCost:
    """What (g, o) cost one block whose parameters are sharded to one of some p, in whole ns and bytes.

    Only through the padding of shards does it depend on p.
    """

    grad_degree: int
    optim_degree: int
    param_degrees: tuple[int, ...]
    """All p that divide o and pad alike."""
    reduced: Sent
    """In every micro-batch."""
    boundary: Sent
    rest_bytes: int
    """Gradients."""
    update_bytes: int
    apart: Apart = ()
    quantized: bool = False
    """Gradients are reduced as int4."""

    @property
    def reducing(self) -> Reducing:
        """When gradients are reduced."""
        return reducing_of(self.grad_degree, self.optim_degree)


@dataclass(frozen=True, slots=True)
class SecondaryCost:
    """What gathering over s for backward costs one block whose parameters are sharded over p."""

    param_degree: int
    secondary_degree: int
    gathered: Gathered
    backward: Sent
    """Gathered in every micro-batch."""
    apart: Apart = ()


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Equal blocks with what can be chosen for each."""

    blocks: tuple[int, ...]
    """Indices into `Workload.blocks`, in order of execution."""
    has_params: bool
    """Blocks without parameters cost the same whatever is chosen."""
    recomputable: bool
    least_recomputed: int
    most_recomputed: int
    again: Computed
    """The forward of one block that runs again, in one micro-batch."""
    params: tuple[ParamCost, ...]
    grads: tuple[GradCost, ...]
    secondaries: tuple[SecondaryCost, ...]
    pairs: tuple[tuple[int, int, int], ...]
    """Every (p, g, o) that nests, where p and g cannot be chosen apart; empty where all of a common o nest."""
    manners: tuple[Manner, ...]
    """Those that its blocks can have, in their order."""


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes that depend on what is chosen for one block."""

    block: int
    by_manner: tuple[int, ...]
    """One per entry of its group's `manners`."""
    if_recomputed: int = 0


class GroupKind(NamedTuple):
    """So many times what the blocks of a group hold apart of one kind."""

    group: int
    """Its first block."""
    kind: Kind
    times: int


@dataclass(frozen=True, slots=True)
class Held:
    """A sum of bytes: constant + what depends on blocks + what differs where all blocks that can be are recomputed."""

    constant: int = 0
    terms: tuple[Term, ...] = ()
    if_all_recomputed: int = 0
    apart: tuple[GroupKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Stretch:
    """A segment of the step: what comes to stay before it, and the moments in it that can be the step's peak."""

    change: Held
    """Added to what is alive, for this segment and all that follow."""
    moments: tuple[Held, ...]
    """Beyond what is alive and model states."""


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
    closing: tuple[Held, ...]
    """Moments after the last of them, beyond model states, when no activations are alive."""
    updating: Held
    """What the update holds beyond model states and `GradCost.update_bytes`."""
    always_bytes: int
    """Held whatever is chosen: the model's buffers."""
    control_ns: int = 0
    """Of what all ranks agree on before the update."""


class GroupChoice(NamedTuple):
    """What is chosen for one group."""

    strategies: tuple[tuple[Strategy, int], ...]
    """Without recomputation, each with its number of blocks."""
    num_recomputed: int


Choice = tuple[GroupChoice, ...]
"""One for each group."""


def strategies_of(table: BlockTable, choice: Choice) -> dict[int, Strategy]:
    """Returns the strategy of each block, by its index in `Workload.blocks`; without parameters, the most common."""
    numbers: dict[Strategy, int] = {}
    for group, (strategies, _) in zip(table.groups, choice, strict=True):
        for strategy, number in strategies:
            numbers[strategy] = numbers.get(strategy, 0) + number * group.has_params
    most_common = max(numbers, key=lambda strategy: numbers[strategy])
    chosen: dict[int, Strategy] = {}
    for group, (strategies, num_recomputed) in zip(table.groups, choice, strict=True):
        in_order = [
            each
            for strategy, number in in_order_of_manners(strategies)
            for each in [_quantized(group, strategy)] * number
        ]
        if not group.has_params:
            in_order = [most_common] * len(group.blocks)
        for number, (block, strategy) in enumerate(zip(group.blocks, in_order, strict=True)):
            chosen[block] = replace(strategy, recompute="full") if number < num_recomputed else strategy
    return chosen


def _quantized(group: BlockGroup, strategy: Strategy) -> Strategy:
    """Returns a strategy with what its costs are of."""
    p, g, o = strategy.degrees
    return replace(
        strategy,
        quantized_weights=any(
            each.quantized for each in group.params if (each.param_degree, each.optim_degree) == (p, o)
        ),
        quantized_gradients=any(
            each.quantized
            for each in group.grads
            if (each.grad_degree, each.optim_degree) == (g, o) and p in each.param_degrees
        ),
    )


def manners_of(secondaries: Sequence[SecondaryCost], grads: Sequence[GradCost]) -> tuple[Manner, ...]:
    """Returns the manners that blocks can have, in their order."""
    gathered = {each.gathered for each in secondaries}
    reducing = {each.reducing for each in grads}
    every = (Manner(*each) for each in product(gathered, reducing))
    # Only whole parameters go with gradients that are not reduced to less than all.
    return tuple(sorted((each for each in every if each.reducing != "never" or each.gathered == "whole"), key=_place))


def in_order_of_manners(strategies: Sequence[tuple[Strategy, int]]) -> Iterator[tuple[Strategy, int]]:
    """Yields strategies in the order in which equal blocks take them."""
    yield from sorted(strategies, key=lambda each: (_place(manner_of(each[0])), each[0]))


def _place(manner: Manner) -> tuple[int, int]:
    return (_ORDER.index(manner.gathered), REDUCINGS.index(manner.reducing))
