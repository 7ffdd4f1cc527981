"""Puts the layers that a shorter model left out back: each is a copy of one in the middle that is equal to it.

Everything of a layer in the middle is that of its equals but its names, so that the whole is exact in all sums. Only
where a trace of all layers would show that they are not equal after all does it differ: what a forward makes of the
layer's own number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from costmodels.workload import Block, ModuleCall, Segment
from planner.trace.amounts import MismatchError
from planner.trace.layout import BlockLayout, Repetition
from planner.trace.recording import ModelFacts
from planner.trace.signature import ancestors
from planner.trace.truncate import Shortening


def multiply(
    facts: ModelFacts, layout: BlockLayout, segments: Sequence[Segment], shortening: Shortening
) -> tuple[BlockLayout, tuple[Segment, ...]]:
    """Returns layout and segments of all layers, given those of the shorter model.

    Args:
        facts: Of the full model.
        layout: Of the shorter model.
        segments: Of the shorter model.
        shortening: What it has of the full model.

    Raises:
        MismatchError: Its layers do not run one after the other, or layers of one kind are not equal.
    """
    copies = _Copies(facts, layout, shortening)
    whole = copies.layout()
    placed = [_Placed(layout.blocks[segment.block].name, segment) for segment in segments]
    phases = [[one for one in placed if one.segment.phase == phase] for phase in ("forward", "backward")]
    for repetition in shortening.repetitions:
        for number, members in enumerate((repetition.members, repetition.members[::-1])):
            phases[number] = _with_copies(phases[number], members, copies, shortening)
    number_of = {block.name: index for index, block in enumerate(whole.blocks)}
    return whole, tuple(replace(one.segment, block=number_of[one.block]) for phase in phases for one in phase)


def multiply_pairs(
    facts: ModelFacts, layout: BlockLayout, shortening: Shortening, pairs: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Returns pairs of parameters with those that the copies have in their place, as their templates do."""
    copies = _Copies(facts, layout, shortening)
    found = []
    for weight, bias in pairs:
        found.append((weight, bias))
        for member, template in copies.template.items():
            if facts.parameters[weight].name.startswith(f"{template}."):
                first, second = copies.renamed_parameters((weight, bias), member)
                found.append((first, second))
    return tuple(found)


class _Placed(NamedTuple):
    """A segment of a block that is known by its name, while blocks are still being added."""

    block: str
    segment: Segment


def _with_copies(
    placed: list[_Placed], members: Sequence[str], copies: _Copies, shortening: Shortening
) -> list[_Placed]:
    """Returns one phase with the copies in it; `members` are all layers of a list in their order of execution."""
    runs = {member: _run(placed, member) for member in members if member in shortening.kept}
    order = [member for member in members if runs.get(member)]
    if not order:
        return placed
    if any(runs[one].stop > runs[other].start for one, other in pairwise(order)):
        raise MismatchError
    between = _between(placed, order, runs, shortening)
    found = placed[: runs[order[0]].start]
    before = None
    for member in members:
        run = runs[copies.template.get(member, member)]
        if not run:
            continue
        if before is not None:
            found += _gap(placed, before, member, runs, between, shortening)
        stretch = placed[run.start : run.stop]
        found += [copies.copy(one, member) for one in stretch] if member in copies.template else stretch
        before = member
    return found + placed[runs[order[-1]].stop :]


def _run(placed: list[_Placed], member: str) -> range:
    """Returns where the layer runs, with all that runs in between."""
    mine = [position for position, one in enumerate(placed) if one.block == member]
    return range(mine[0], mine[-1] + 1) if mine else range(0)


_Gaps = dict[tuple[Hashable, Hashable], list[_Placed]]


def _between(placed: list[_Placed], order: list[str], runs: dict[str, range], shortening: Shortening) -> _Gaps:
    """Returns what runs between a layer of one kind and the next of another; rather what is between two middles."""
    found: _Gaps = {}
    layers = frozenset(shortening.positions)
    for one, other in pairwise(order):
        gap = placed[runs[one].stop : runs[other].start]
        if any(piece.block in layers or piece.segment.gradients for piece in gap):
            raise MismatchError
        kinds = shortening.kinds[one], shortening.kinds[other]
        if kinds not in found or shortening.positions[one] == shortening.positions[other] == "middle":
            found[kinds] = gap
    return found


def _gap(
    placed: list[_Placed], one: str, other: str, runs: dict[str, range], between: _Gaps, shortening: Shortening
) -> list[_Placed]:
    """Returns what runs between two layers that follow one another."""
    if one in shortening.kept and other in shortening.kept:
        return placed[runs[one].stop : runs[other].start]
    kinds = shortening.kinds[one], shortening.kinds[other]
    if kinds not in between:
        raise MismatchError
    return between[kinds]


class _Copies:
    """Which layer each left out one is a copy of, and how names change with it."""

    def __init__(self, facts: ModelFacts, layout: BlockLayout, shortening: Shortening) -> None:
        self._facts, self._layout, self._shortening = facts, layout, shortening
        self._index_of = {parameter.name: index for index, parameter in enumerate(facts.parameters)}
        self.template = {
            member: self._template(member, repetition)
            for repetition in shortening.repetitions
            for member in repetition.members
            if member not in shortening.kept
        }

    def _template(self, member: str, repetition: Repetition) -> str:
        """Returns the second layer in the middle of the member's kind; both there are must be equal."""
        kinds, positions = self._shortening.kinds, self._shortening.positions
        middles = [
            other
            for other in repetition.members
            if other in self._shortening.kept and kinds[other] == kinds[member] and positions[other] == "middle"
        ]
        blocks = [self._layout.blocks[self._layout.block_of[name]] for name in middles]
        if [block.name for block in blocks] != middles or len({block.block_class for block in blocks}) != 1:
            raise MismatchError
        return middles[-1]

    def layout(self) -> BlockLayout:
        """Returns the layout of all layers: each copy comes after the layer before it in its list."""
        blocks: list[Block] = []
        after = self._followers()
        for block in self._layout.blocks:
            kept = tuple(index for index in block.parameters if not self._is_copied(index))
            blocks.append(replace(block, parameters=kept))
            blocks += [self._copied_block(member) for member in after.get(block.name, ())]
        number = {block.name: index for index, block in enumerate(blocks)}
        block_of = {name: next(number[up] for up in ancestors(name) if up in number) for name in self._facts.modules}
        return BlockLayout(tuple(blocks), block_of, self._layout.repetitions)

    def _followers(self) -> dict[str, list[str]]:
        """Returns the copies that follow each layer that was traced."""
        found: dict[str, list[str]] = {}
        for repetition in self._shortening.repetitions:
            last = ""
            for member in repetition.members:
                if member in self.template:
                    found.setdefault(last, []).append(member)
                else:
                    last = member
        return found

    def _is_copied(self, parameter: int) -> bool:
        return any(up in self.template for up in ancestors(self._facts.parameters[parameter].name))

    def _copied_block(self, member: str) -> Block:
        template = self._layout.blocks[self._layout.block_of[self.template[member]]]
        return replace(template, name=member, parameters=self.renamed_parameters(template.parameters, member))

    def renamed_parameters(self, parameters: Sequence[int], member: str) -> tuple[int, ...]:
        """Returns the parameters of the layer that stand where these do in the one that it is a copy of."""
        names = [self.renamed(self._facts.parameters[index].name, member) for index in parameters]
        if any(name not in self._index_of for name in names):
            raise MismatchError
        return tuple(self._index_of[name] for name in names)

    def renamed(self, name: str, member: str) -> str:
        """Returns the name in a copy of what has this name in the layer that it is a copy of."""
        template = self.template[member]
        return member + name[len(template) :] if name == template or name.startswith(f"{template}.") else name

    def copy(self, placed: _Placed, member: str) -> _Placed:
        """Returns a segment of the layer that this is a copy of as the copy has it."""
        segment = placed.segment
        calls = tuple(self._copied_call(call, member) for call in segment.calls)
        gradients = self.renamed_parameters(segment.gradients, member)
        return _Placed(self.renamed(placed.block, member), replace(segment, calls=calls, gradients=gradients))

    def _copied_call(self, call: ModuleCall, member: str) -> ModuleCall:
        return replace(
            call, module=self.renamed(call.module, member), parameters=self.renamed_parameters(call.parameters, member)
        )
