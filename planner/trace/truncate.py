"""Shortens a model's lists of repeated layers, so that a second trace need not run them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from planner.trace.layout import BlockLayout, Repetition

NUM_MIDDLES = 2
"""Two layers that are neither first nor last show also what happens between two such."""


def positions(layout: BlockLayout, repetition: Repetition) -> dict[str, str]:
    """Returns for each member "first", "middle" or "last" among those of its class in the list."""
    by_class: dict[int, list[str]] = {}
    for member in repetition.members:
        by_class.setdefault(layout.blocks[layout.block_of[member]].block_class, []).append(member)
    found: dict[str, str] = {}
    for members in by_class.values():
        found |= dict.fromkeys(members, "middle")
        found[members[-1]] = "last"
        found[members[0]] = "first"
    return found


def is_shorter(layout: BlockLayout) -> bool:
    """Whether `truncated` would leave any layer out."""
    return any(len(_kept(layout, repetition)) < len(repetition.members) for repetition in layout.repetitions)


@contextmanager
def truncated(module: nn.Module, layout: BlockLayout) -> Iterator[None]:
    """While open, each list holds of each class of equal layers only the first, two in the middle, and the last."""
    before: list[tuple[nn.Module, dict[str, nn.Module | None]]] = []
    for repetition in layout.repetitions:
        if not repetition.is_list:
            continue
        owner = module.get_submodule(repetition.owner)
        kept = _kept(layout, repetition)
        before.append((owner, owner._modules))
        prefix = f"{repetition.owner}." if repetition.owner else ""
        remaining = [
            child
            for name, child in owner._modules.items()
            if prefix + name in kept or prefix + name not in repetition.members
        ]
        owner._modules = {str(index): child for index, child in enumerate(remaining)}
    try:
        yield
    finally:
        for owner, modules in before:
            owner._modules = modules


def _kept(layout: BlockLayout, repetition: Repetition) -> frozenset[str]:
    if not repetition.is_list:
        return frozenset(repetition.members)
    kept: list[str] = []
    num_middles: dict[int, int] = {}
    for member, position in positions(layout, repetition).items():
        block_class = layout.blocks[layout.block_of[member]].block_class
        if position == "middle":
            num_middles[block_class] = num_middles.get(block_class, 0) + 1
        if position != "middle" or num_middles[block_class] <= NUM_MIDDLES:
            kept.append(member)
    return frozenset(kept)
