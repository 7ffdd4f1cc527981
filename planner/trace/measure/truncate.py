"""Shortens a model's lists of repeated layers, so that a trace need not run them all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torch import nn

from planner.trace.blocks.layout import BlockLayout, Repetition

LONGER_BY = 7
"""Layers more, or one period of more than that, with which a shorter list is compared before it is multiplied."""


@dataclass(frozen=True, slots=True)
class ShortList:
    """A list of layers of which only the first `num_kept` run: a model may know its layers by their numbers.

    After a head, their kinds repeat with a period. The last period of the shorter list stands for the last one of the
    whole list, and the one before it for all in the middle.
    """

    owner: str
    members: tuple[str, ...]
    head: int
    """Layers at the beginning that stand for themselves: what does not repeat, and the first period."""
    period: int
    num_kept: int

    @property
    def kept(self) -> tuple[str, ...]:
        """The layers that run."""
        return self.members[: self.num_kept]

    def counterpart(self, number: int) -> int:
        """Returns the number of the layer of the shorter list that stands for this one of the whole list."""
        if number < self.head or self.num_kept == len(self.members):
            return number
        left = len(self.members) - number
        if left <= self.period:
            return self.num_kept - left
        middle = self.num_kept - 2 * self.period
        return middle + (number - middle) % self.period

    def longer(self) -> ShortList:
        """Returns the list with a few periods more in its middle: what this one says of those can be looked at."""
        more = max(LONGER_BY // self.period, 1) * self.period
        return replace(self, num_kept=min(self.num_kept + more, len(self.members)))

    def within(self, longer: ShortList) -> ShortList:
        """Returns this list as the shorter one of a whole list that has only the layers that run of `longer`."""
        return replace(self, members=longer.kept)


@dataclass(frozen=True, slots=True)
class Shortening:
    """What remains of the lists of a model."""

    lists: tuple[ShortList, ...]

    def longer(self) -> Shortening:
        """Returns what remains where each list has a few periods more."""
        return Shortening(tuple(one.longer() for one in self.lists))

    def within(self, longer: Shortening) -> Shortening:
        """Returns this as what remains of the lists of `longer`."""
        return Shortening(tuple(one.within(other) for one, other in zip(self.lists, longer.lists, strict=True)))

    @property
    def dropped(self) -> tuple[str, ...]:
        """The layers that do not run."""
        return tuple(member for one in self.lists for member in one.members[one.num_kept :])


def shorten(repetitions: Sequence[Repetition], kinds: Mapping[str, Hashable]) -> Shortening:
    """Returns what remains of the lists among `repetitions`; their layers are equal where `kinds` has equal values."""
    lists = [repetition for repetition in repetitions if repetition.is_list]
    return Shortening(tuple(_short_list(one, [kinds[member] for member in one.members]) for one in lists))


def _short_list(repetition: Repetition, kinds: Sequence[Hashable]) -> ShortList:
    """Finds the prefix and the period with which the fewest layers run."""
    total = len(kinds)
    best = ShortList(repetition.owner, repetition.members, total, 1, total)
    for period in range(1, total // 3 + 1):
        prefix = _irregular(kinds, period)
        # A first period, one in the middle, or two layers, which show what is between two such, and a last one.
        least = prefix + 2 * period + max(period, 2)
        num_kept = least + (total - least) % period
        if num_kept < best.num_kept:
            best = ShortList(repetition.owner, repetition.members, prefix + period, period, num_kept)
    return best


def _irregular(kinds: Sequence[Hashable], period: int) -> int:
    """Returns how many come before all that follows repeats with the period."""
    return next(
        (number + 1 for number in range(len(kinds) - period - 1, -1, -1) if kinds[number] != kinds[number + period]), 0
    )


def classes(layout: BlockLayout) -> dict[str, Hashable]:
    """Returns the class of the block of each repeated layer, as `shorten` wants it."""
    members = [member for repetition in layout.repetitions for member in repetition.members]
    return {member: layout.blocks[layout.block_of[member]].block_class for member in members}


@contextmanager
def truncated(module: nn.Module, shortening: Shortening) -> Iterator[None]:
    """While open, each list holds only the layers that remain."""
    before: list[tuple[nn.Module, dict[str, nn.Module | None]]] = []
    for one in shortening.lists:
        owner = module.get_submodule(one.owner)
        before.append((owner, owner._modules))
        prefix = f"{one.owner}." if one.owner else ""
        gone = frozenset(one.members[one.num_kept :])
        remaining = [child for name, child in owner._modules.items() if prefix + name not in gone]
        owner._modules = {str(index): child for index, child in enumerate(remaining)}
    try:
        yield
    finally:
        for owner, modules in before:
            owner._modules = modules
