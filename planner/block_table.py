"""What each strategy costs each block, at one micro-batch: all that the solver of per-class choices sees.

For an engine whose blocks can differ (`costmodels.fsdp`), every cost of a step is a sum over its blocks, each by its
own strategy, or a maximum of such sums. Equal blocks form a group; a choice is, for each group, how many of its blocks
have each strategy. They take them in the order of their manners (`costmodels.fsdp.holds.Manner`), from the first block
on, so that a choice says what each block does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from costmodels.fsdp.holds import Manner
from costmodels.strategy import StepShape, Strategy
from planner.cost_table import Amount


@dataclass(frozen=True, slots=True)
class BlockCost:
    """One strategy of one block: whole ns and bytes, all micro-batches of a step together."""

    strategy: Strategy
    manner: int
    """Index into its group's manners."""
    forward_ns: int
    """Communication."""
    forward_bare_ns: int
    """What of it compute cannot hide in any case."""
    forward_longest_ns: int
    """Its part of the message that is exposed if no other block's is longer."""
    backward_ns: int
    """Communication, boundary included, and the second forward where it is recomputed."""
    backward_bare_ns: int
    backward_longest_ns: int
    recomputed_ns: int
    """What of the second forward communication can run beside."""
    alone_ns: int
    """The update, and its messages."""
    rest_bytes: int
    """Model states."""
    update_bytes: int
    spread_bytes: int
    """Held while this block's parameters are spread; the largest of any block counts."""
    output_bytes: int
    """Held in backward for the output of a reduction; the largest of any block counts."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Equal blocks with what can be chosen for each."""

    block_class: int
    blocks: tuple[int, ...]
    """Indices into `Workload.blocks`, in order of execution."""
    recomputable: bool
    """Whether its blocks can be recomputed at all."""
    manners: tuple[Manner, ...]
    """Of its costs, in their order."""
    costs: tuple[BlockCost, ...]
    """In order of their manners; none of equal manner is at least as good in everything as another."""


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes that depend on the manner of one block."""

    block: int
    bytes_by_manner: tuple[int, ...]
    """One per entry of its group's `manners`."""


@dataclass(frozen=True, slots=True)
class Held:
    """A sum of bytes: constant + what depends on blocks + what differs where all blocks that can be are recomputed."""

    constant_bytes: int = 0
    terms: tuple[Term, ...] = ()
    all_recomputed_bytes: int = 0

    def at(self, manners: Mapping[int, int], all_recomputed: bool) -> int:
        """Returns the bytes when each block has the manner of this number."""
        chosen = sum(term.bytes_by_manner[manners[term.block]] for term in self.terms)
        return self.constant_bytes + chosen + self.all_recomputed_bytes * all_recomputed

    def bound(self, pick: Callable[..., int]) -> int:
        """Returns a bound of the bytes: from below by `min`, from above by `max`."""
        return (
            self.constant_bytes
            + sum(pick(term.bytes_by_manner) for term in self.terms)
            + pick(0, self.all_recomputed_bytes)
        )


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
    forward_ns: tuple[int, int]
    """Of all compute: (what communication cannot run beside, everything). The two bounds of the phase start here."""
    backward_ns: tuple[int, int]
    stretches: tuple[Stretch, ...]
    always_bytes: int
    """Held whatever is chosen: the model's buffers."""

    @property
    def most_ns(self) -> int:
        """Nanoseconds that no phase exceeds."""
        most = sum(
            len(group.blocks) * max(max(cost.forward_ns, cost.backward_ns) for cost in group.costs)
            for group in self.groups
        )
        return most + max(*self.forward_ns, *self.backward_ns)

    @property
    def greatest_bytes(self) -> int:
        """Bytes that no peak exceeds."""
        return self._memory_bound(max)

    def least(self, amount: Amount) -> int:
        """Returns an amount that no choice is below: ns of a step, or bytes at its peak."""
        if amount == "memory":
            return self._memory_bound(min)
        return sum(
            max(first_ns + self._bound(min, first), second_ns + self._bound(min, second))
            for (first_ns, second_ns), (first, second) in zip((self.forward_ns, self.backward_ns), _BOUNDS, strict=True)
        ) + self._bound(min, lambda cost: cost.alone_ns)

    def totals(self, counts: Counts) -> tuple[int, int]:
        """Returns (ns of a step, bytes at its peak) of a choice."""
        chosen = [
            (cost, number)
            for group, numbers in zip(self.groups, counts, strict=True)
            for cost, number in zip(group.costs, numbers, strict=True)
            if number
        ]

        def total(value: Callable[[BlockCost], int]) -> int:
            return sum(value(cost) * number for cost, number in chosen)

        def largest(value: Callable[[BlockCost], int]) -> int:
            return max((value(cost) for cost, _ in chosen), default=0)

        longest = (largest(lambda cost: cost.forward_longest_ns), largest(lambda cost: cost.backward_longest_ns))
        step_ns = total(lambda cost: cost.alone_ns) + sum(
            max(first_ns + total(first), second_ns + total(second) + longest_ns)
            for (first_ns, second_ns), (first, second), longest_ns in zip(
                (self.forward_ns, self.backward_ns), _BOUNDS, longest, strict=True
            )
        )
        rest_bytes = total(lambda cost: cost.rest_bytes)
        update_bytes = total(lambda cost: cost.update_bytes) + largest(lambda cost: cost.spread_bytes)
        peaks = self._peaks(counts, largest(lambda cost: cost.output_bytes))
        return step_ns, self.always_bytes + rest_bytes + max(update_bytes, *peaks)

    def _peaks(self, counts: Counts, output_bytes: int) -> Iterator[int]:
        manners: dict[int, int] = {}
        for group, numbers in zip(self.groups, counts, strict=True):
            in_order = [cost.manner for cost, number in zip(group.costs, numbers, strict=True) for _ in range(number)]
            manners.update(zip(group.blocks, in_order, strict=True))
        all_recomputed = all(
            group.manners[manners[group.blocks[-1]]].is_recomputed for group in self.groups if group.recomputable
        )
        alive_bytes = 0
        for stretch in self.stretches:
            alive_bytes += stretch.change.at(manners, all_recomputed)
            for moment in stretch.moments:
                yield alive_bytes + moment.at(manners, all_recomputed) + output_bytes * stretch.is_backward

    def _bound(self, pick: Callable[[Iterable[int]], int], value: Callable[[BlockCost], int]) -> int:
        return sum(len(group.blocks) * pick(map(value, group.costs)) for group in self.groups)

    def _memory_bound(self, pick: Callable[..., int]) -> int:
        rest_bytes = self._bound(pick, lambda cost: cost.rest_bytes)
        update_bytes = self._bound(pick, lambda cost: cost.update_bytes)
        once_bytes = [
            pick(cost.output_bytes + cost.spread_bytes for group in self.groups for cost in group.costs)
            for _ in self.groups[:1]
        ]
        peaks = [update_bytes]
        alive_bytes = 0
        for stretch in self.stretches:
            alive_bytes += stretch.change.bound(pick)
            peaks += [alive_bytes + moment.bound(pick) for moment in stretch.moments]
        return self.always_bytes + rest_bytes + max(peaks) + (sum(once_bytes) if pick is max else 0)


_BOUNDS: tuple[tuple[Callable[[BlockCost], int], Callable[[BlockCost], int]], ...] = (
    (lambda cost: cost.forward_ns, lambda cost: cost.forward_bare_ns),
    (lambda cost: cost.backward_ns - cost.recomputed_ns, lambda cost: cost.backward_bare_ns),
)
"""What both bounds of forward and of backward add for a block: behind compute, and beside it."""


Counts = tuple[tuple[int, ...], ...]
"""For each group, how many of its blocks have each of its costs."""


def strategies_of(table: BlockTable, counts: Counts) -> dict[int, Strategy]:
    """Returns the strategy of each block, by its index in `Workload.blocks`."""
    chosen: dict[int, Strategy] = {}
    for group, numbers in zip(table.groups, counts, strict=True):
        in_order = [cost.strategy for cost, number in zip(group.costs, numbers, strict=True) for _ in range(number)]
        chosen.update(zip(group.blocks, in_order, strict=True))
    return chosen


def groups_of_blocks(groups: Sequence[BlockGroup]) -> dict[int, int]:
    """Returns the number of the group of each block."""
    return {block: number for number, group in enumerate(groups) for block in group.blocks}
