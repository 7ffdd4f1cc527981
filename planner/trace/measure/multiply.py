"""Puts the layers that a shorter model left out back: each is a copy of one that is equal to it.

Everything of a layer is that of its equals but its names, so that the whole is exact. Only where a trace of all layers
would show that they are not equal after all does it differ: what a forward makes of the layer's own number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from costmodels.workload import Block, ModuleCall, Segment
from planner.trace.blocks.layout import BlockLayout
from planner.trace.blocks.signature import ancestors
from planner.trace.measure.amounts import MismatchError
from planner.trace.measure.expand import Origin, expand
from planner.trace.measure.segments import MeasuredSegment
from planner.trace.measure.truncate import Shortening
from planner.trace.record.recording import ModelFacts

_MEASURES = ("phase", "work", "io_bytes", "product_io_bytes", "frozen_input_bytes", "num_operators", "changes")


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
    names = _Names(facts)
    whole = _whole_layout(facts, layout, shortening, names)
    number_of = {block.name: index for index, block in enumerate(whole.blocks)}
    origins = expand([(layout.blocks[s.block].name, s.phase) for s in segments], shortening)
    return whole, tuple(
        replace(names.copied(segments[origin.segment], origin), block=number_of[origin.block]) for origin in origins
    )


def multiply_pairs(
    facts: ModelFacts, shortening: Shortening, pairs: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Returns pairs of parameters of the shorter model with those that stand in their place in other layers."""
    names = _Names(facts)
    layers = frozenset(member for one in shortening.lists for member in one.members)
    of_layer: dict[str, list[tuple[int, int]]] = {}
    for pair in pairs:
        layer = next((up for up in ancestors(facts.parameters[pair[0]].name) if up in layers), "")
        of_layer.setdefault(layer, []).append(pair)
    found = of_layer.get("", [])
    for one in shortening.lists:
        for number, member in enumerate(one.members):
            template = one.members[one.counterpart(number)]
            for weight, bias in of_layer.get(template, ()):
                copied = names.parameters((weight, bias), template, member)
                found.append((copied[0], copied[1]))
    return tuple(found)


def transfer(
    full: Sequence[MeasuredSegment],
    measured: Sequence[MeasuredSegment],
    joined: Sequence[Segment],
    layout: BlockLayout,
    shortening: Shortening,
) -> tuple[Segment, ...]:
    """Returns the segments of a trace of all layers, with the amounts of their counterparts in the shorter model.

    Args:
        full: Of all layers, at one micro-batch size.
        measured: Of the shorter model at the same size.
        joined: The same as `measured`, joined with those of another size.
        layout: Of the full model.
        shortening: What the shorter model has.

    Raises:
        MismatchError: A segment has no counterpart in the shorter model, or is not equal to it.
    """
    found = []
    for origin, segment in _matched(measured, layout, full, layout, shortening):
        counterpart = joined[origin.segment]
        found.append(replace(counterpart, block=segment.block, calls=segment.calls, gradients=segment.gradients))
    return tuple(found)


def check_multiplied(
    measured: Sequence[MeasuredSegment],
    layout: BlockLayout,
    longer: Sequence[MeasuredSegment],
    longer_layout: BlockLayout,
    shortening: Shortening,
) -> None:
    """Compares a shorter model, multiplied, with one that has a few layers more.

    Args:
        measured: Segments of the shorter model.
        layout: Its layout.
        longer: Segments of the other, at the same size.
        longer_layout: Its layout.
        shortening: What the shorter model has of the other.

    Raises:
        MismatchError: They differ, so that layers are not as equal as they look: a forward counts them, keeps their
            results, or leaves some out.
    """
    for origin, segment in _matched(measured, layout, longer, longer_layout, shortening):
        if _uses(measured[origin.segment]) != _uses(segment):
            raise MismatchError


def _matched(
    measured: Sequence[MeasuredSegment],
    layout: BlockLayout,
    whole: Sequence[MeasuredSegment],
    whole_layout: BlockLayout,
    shortening: Shortening,
) -> Iterator[tuple[Origin, MeasuredSegment]]:
    """Yields the segments of `whole` with what they are of `measured`, multiplied; raises where they are not equal."""
    origins = expand([(layout.blocks[s.block].name, s.phase) for s in measured], shortening)
    if [origin.block for origin in origins] != [whole_layout.blocks[segment.block].name for segment in whole]:
        raise MismatchError
    for origin, segment in zip(origins, whole, strict=True):
        if any(getattr(measured[origin.segment], name) != getattr(segment, name) for name in _MEASURES):
            raise MismatchError
        yield origin, segment


def _uses(segment: MeasuredSegment) -> tuple[object, ...]:
    """What a segment calls and completes, without names."""
    calls = [(len(call.parameters), call.depth, call.inputs_require_grad, call.num_outputs) for call in segment.calls]
    return calls, segment.completed


class _Names:
    """How names change from one layer to another that is equal to it."""

    def __init__(self, facts: ModelFacts) -> None:
        self._parameters = facts.parameters
        self._index_of = {parameter.name: index for index, parameter in enumerate(facts.parameters)}

    def parameters(self, indices: Sequence[int], template: str, member: str) -> tuple[int, ...]:
        """Returns the parameters of a layer that stand where these do in the other; those of neither stay."""
        names = [_renamed(self._parameters[index].name, template, member) for index in indices]
        if any(name not in self._index_of for name in names):
            raise MismatchError
        return tuple(self._index_of[name] for name in names)

    def copied(self, segment: Segment, origin: Origin) -> Segment:
        """Returns a segment of one layer as the other has it."""
        template, member = origin.template, origin.member
        if template == member:
            return segment
        calls = tuple(self._copied_call(call, template, member) for call in segment.calls)
        return replace(segment, calls=calls, gradients=self.parameters(segment.gradients, template, member))

    def _copied_call(self, call: ModuleCall, template: str, member: str) -> ModuleCall:
        parameters = self.parameters(call.parameters, template, member)
        return replace(call, module=_renamed(call.module, template, member), parameters=parameters)


def _renamed(name: str, template: str, member: str) -> str:
    return member + name[len(template) :] if name == template or name.startswith(f"{template}.") else name


def _whole_layout(facts: ModelFacts, layout: BlockLayout, shortening: Shortening, names: _Names) -> BlockLayout:
    """Returns the layout of all layers; those that were left out come after the last one of their list that ran."""
    dropped = frozenset(shortening.dropped)
    of_name = {block.name: block for block in layout.blocks}
    copies: dict[str, Block] = {}
    after: dict[str, tuple[str, ...]] = {}
    for one in shortening.lists:
        after[one.kept[-1]] = one.members[one.num_kept :]
        for number, member in enumerate(one.members):
            template = of_name.get(one.members[one.counterpart(number)])
            if template is None:
                raise MismatchError
            parameters = names.parameters(template.parameters, template.name, member)
            copies[member] = replace(template, name=member, parameters=parameters)
    blocks: list[Block] = []
    for block in layout.blocks:
        mine = tuple(
            index
            for index in block.parameters
            if not any(up in dropped for up in ancestors(facts.parameters[index].name))
        )
        blocks.append(copies.get(block.name, replace(block, parameters=mine)))
        blocks += [copies[member] for member in after.get(block.name, ())]
    number_of = {block.name: index for index, block in enumerate(blocks)}
    block_of = {name: next(number_of[up] for up in ancestors(name) if up in number_of) for name in facts.modules}
    return BlockLayout(tuple(blocks), block_of, layout.repetitions)
