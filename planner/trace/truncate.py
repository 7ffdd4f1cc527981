"""Shortens a model's lists of repeated layers, so that a trace need not run them all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from planner.trace.layout import BlockLayout, Repetition

NUM_MIDDLES = 2
"""Two layers that are neither first nor last show also what happens between two such."""


@dataclass(frozen=True, slots=True)
class Shortening:
    """Of each list, the layers that remain: of each kind the first, two in the middle, and the last."""

    repetitions: tuple[Repetition, ...]
    kinds: Mapping[str, Hashable]
    """Of each layer, what it has in common with its equals."""
    positions: Mapping[str, str]
    """Of each layer, "first", "middle" or "last" among its equals in the list."""
    kept: frozenset[str]

    @property
    def dropped(self) -> tuple[str, ...]:
        """The layers that are left out, in the order of their lists."""
        return tuple(member for one in self.repetitions for member in one.members if member not in self.kept)


def shorten(repetitions: Sequence[Repetition], kinds: Mapping[str, Hashable]) -> Shortening:
    """Returns what remains of the lists among `repetitions`; their layers are equal where `kinds` has equal values."""
    lists = tuple(repetition for repetition in repetitions if repetition.is_list)
    positions: dict[str, str] = {}
    kept: set[str] = set()
    for repetition in lists:
        by_kind: dict[Hashable, list[str]] = {}
        for member in repetition.members:
            by_kind.setdefault(kinds[member], []).append(member)
        for members in by_kind.values():
            positions |= dict.fromkeys(members, "middle") | {members[-1]: "last"} | {members[0]: "first"}
            kept |= {members[0], *members[1 : 1 + NUM_MIDDLES], members[-1]}
    return Shortening(lists, dict(kinds), positions, frozenset(kept))


def classes(layout: BlockLayout) -> dict[str, Hashable]:
    """Returns the class of the block of each repeated layer, as `shorten` wants it."""
    members = [member for repetition in layout.repetitions for member in repetition.members]
    return {member: layout.blocks[layout.block_of[member]].block_class for member in members}


@contextmanager
def truncated(module: nn.Module, shortening: Shortening) -> Iterator[None]:
    """While open, each list holds only the layers that remain."""
    before: list[tuple[nn.Module, dict[str, nn.Module | None]]] = []
    for repetition in shortening.repetitions:
        owner = module.get_submodule(repetition.owner)
        before.append((owner, owner._modules))
        prefix = f"{repetition.owner}." if repetition.owner else ""
        members = frozenset(repetition.members)
        remaining = [
            child
            for name, child in owner._modules.items()
            if prefix + name in shortening.kept or prefix + name not in members
        ]
        owner._modules = {str(index): child for index, child in enumerate(remaining)}
    try:
        yield
    finally:
        for owner, modules in before:
            owner._modules = modules
