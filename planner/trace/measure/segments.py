"""Cuts a recorded step into segments: stretches inside one block in one phase, with what each costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import fx

from costmodels.workload import Kind, ModuleCall, Phase
from planner.trace.blocks.frozen_inputs import frozen_inputs
from planner.trace.blocks.layout import BlockLayout
from planner.trace.record.liveness import memory_events
from planner.trace.record.recording import MemoryEvent, ModelFacts, NodePhase, Recording


class Change(NamedTuple):
    """Bytes that one operator brought to life, or that died after it."""

    operator: int
    """Counted from the first of the segment."""
    is_death: bool
    is_gradient: bool
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredSegment:
    """A segment at one micro-batch size; the fields are those of `costmodels.workload.Segment`."""

    block: int
    phase: NodePhase
    calls: tuple[ModuleCall, ...]
    work: tuple[tuple[Kind, str, int], ...]
    io_bytes: int
    product_io_bytes: int
    frozen_input_bytes: int
    num_operators: int
    changes: tuple[Change, ...]
    gradients: tuple[int, ...]
    completed: tuple[int, ...]
    """For each of `gradients`, the operator after which it was complete, counted from the first of the segment."""


@dataclass(slots=True)
class _Stretch:
    block: int
    phase: NodePhase
    nodes: list[fx.Node]


def measure_segments(
    facts: ModelFacts, layout: BlockLayout, recording: Recording, recomputed: frozenset[int] = frozenset()
) -> list[MeasuredSegment]:
    """Returns all segments of forward, then all of backward, in order of execution.

    What the model itself runs again in backward is part of backward; of the blocks in `recomputed`, which ran under
    the planner's recomputation, it makes segments of its own.
    """
    stretches = list(_stretches(layout, recording, recomputed))
    segment_of = [position for position, stretch in enumerate(stretches) for _ in stretch.nodes]
    calls = _calls(facts, recording, segment_of, stretches)
    events = _events(recording, segment_of, len(stretches))
    gradients = _gradients(facts, recording, segment_of, len(stretches))
    frozen = frozen_inputs(facts, recording)
    return [
        MeasuredSegment(
            block=stretch.block,
            phase=stretch.phase,
            calls=tuple(calls[position]),
            work=_work(stretch.nodes),
            io_bytes=sum(node.meta["io_bytes"] for node in stretch.nodes if not node.meta["flop"]),
            product_io_bytes=sum(node.meta["io_bytes"] for node in stretch.nodes if node.meta["flop"]),
            frozen_input_bytes=sum(num_bytes for operator, num_bytes in frozen if segment_of[operator] == position),
            num_operators=sum(node.meta["is_kernel"] for node in stretch.nodes),
            changes=_changes(stretch, events[position]),
            gradients=tuple(index for _, index in gradients[position]),
            completed=tuple(operator - stretch.nodes[0].meta["index"] for operator, _ in gradients[position]),
        )
        for position, stretch in enumerate(stretches)
    ]


def _work(nodes: list[fx.Node]) -> tuple[tuple[Kind, str, int], ...]:
    found: dict[tuple[Kind, str], int] = {}
    for node in nodes:
        if node.meta["flop"]:
            key = node.meta["kind_of_work"], node.meta["dtype"]
            found[key] = found.get(key, 0) + node.meta["flop"]
    return tuple((kind, dtype, flop) for (kind, dtype), flop in sorted(found.items()))


def _events(recording: Recording, segment_of: list[int], num_segments: int) -> list[list[tuple[MemoryEvent, bool]]]:
    """Returns for each segment its events, and whether each is of a parameter's gradient."""
    events: list[list[tuple[MemoryEvent, bool]]] = [[] for _ in range(num_segments)]
    for event, is_gradient in memory_events(recording):
        events[segment_of[event.operator]].append((event, is_gradient))
    return events


def _changes(stretch: _Stretch, events: list[tuple[MemoryEvent, bool]]) -> tuple[Change, ...]:
    """Returns the events summed by operator: the order of deaths after the same one says nothing."""
    first = stretch.nodes[0].meta["index"]
    sums: dict[tuple[int, bool, bool], int] = {}
    for event, is_gradient in events:
        key = event.operator - first, event.delta_bytes < 0, is_gradient
        sums[key] = sums.get(key, 0) + event.delta_bytes
    return tuple(Change(*key, delta_bytes) for key, delta_bytes in sorted(sums.items()))


def _gradients(
    facts: ModelFacts, recording: Recording, segment_of: list[int], num_segments: int
) -> list[list[tuple[int, int]]]:
    """Returns for each segment (operator, parameter) of the gradients that are complete in it, in order of time."""
    index_of = {parameter.name: index for index, parameter in enumerate(facts.parameters)}
    gradients: list[list[tuple[int, int]]] = [[] for _ in range(num_segments)]
    for operator, name in recording.completed:
        gradients[segment_of[operator]].append((operator, index_of[name]))
    return gradients


def _stretches(layout: BlockLayout, recording: Recording, recomputed: frozenset[int]) -> Iterator[_Stretch]:
    """Yields runs of operators. Kernels cut them; views go with the kernel of their block, before or after them."""
    current: _Stretch | None = None
    views: list[fx.Node] = []

    def place(node: fx.Node) -> tuple[int, NodePhase]:
        block = layout.block_of[node.meta["fqn"]]
        return block, node.meta["phase"] if block in recomputed else _phase(node)

    for node in recording.graph.nodes:
        if node.op != "call_function" or "part_of" in node.meta:
            continue
        if not node.meta["is_kernel"]:
            views.append(node)
            continue
        block, phase = place(node)
        if current is None:
            current = _Stretch(block, phase, [])
        elif (block, phase) != (current.block, current.phase):
            ahead = next((at for at, view in enumerate(views) if place(view) == (block, phase)), len(views))
            current.nodes += views[:ahead]
            views = views[ahead:]
            yield current
            current = _Stretch(block, phase, [])
        current.nodes += [*views, node]
        views = []
    if current is not None:
        current.nodes += views
        yield current


def _phase(node: fx.Node) -> Phase:
    return "forward" if node.meta["phase"] == "forward" else "backward"


def _calls(
    facts: ModelFacts, recording: Recording, segment_of: list[int], stretches: list[_Stretch]
) -> list[list[ModuleCall]]:
    """Returns for each segment the calls that begin in it: with the first operator at or beneath the call.

    A forward call without operators (a dropout of 0, an identity) begins with the call after it.
    """
    parameters = _parameters_of_calls(facts, recording)
    begins: dict[tuple[Phase, int], int] = {}
    for stretch in stretches:
        for node in stretch.nodes:
            call, phase = node.meta["call"], _phase(node)
            while (phase, call) not in begins:
                begins[phase, call] = node.meta["index"]
                call = recording.calls[call].parent
    following = max((index for (phase, _), index in begins.items() if phase == "forward"), default=0)
    for call in reversed(range(len(recording.calls) if begins else 0)):
        if recording.calls[call].phase == "forward":
            following = begins.setdefault(("forward", call), following)
    calls: list[list[ModuleCall]] = [[] for _ in stretches]
    for (_, call), index in sorted(begins.items(), key=lambda item: (item[1], item[0][1])):
        calls[segment_of[index]].append(
            ModuleCall(
                recording.calls[call].module,
                parameters[call],
                _depth(recording, call),
                recording.calls[call].inputs_require_grad,
                recording.calls[call].num_outputs,
                facts.modules[recording.calls[call].module].num_places,
            )
        )
    return calls


def _depth(recording: Recording, call: int) -> int:
    depth = 0
    while recording.calls[call].parent != call:
        depth, call = depth + 1, recording.calls[call].parent
    return depth


def _parameters_of_calls(facts: ModelFacts, recording: Recording) -> list[tuple[int, ...]]:
    """Returns for each call the parameters its module holds, then those it asked for that no call around it holds."""
    index_of = {parameter.name: index for index, parameter in enumerate(facts.parameters)}
    found = [dict.fromkeys(facts.modules[call.module].parameters) for call in recording.calls]
    for call, name in recording.accesses:
        if not _is_held(index_of[name], call, recording, found):
            found[call][index_of[name]] = None
    for node in recording.graph.nodes:
        if node.op != "call_function" or "part_of" in node.meta:
            continue
        if _phase(node) != recording.calls[node.meta["call"]].phase:
            continue
        for operand in node.all_input_nodes:
            if operand.meta.get("kind") == "parameter":
                index = index_of[operand.meta["name"]]
                if not _is_held(index, node.meta["call"], recording, found):
                    found[node.meta["call"]][index] = None
    return [tuple(parameters) for parameters in found]


def _is_held(index: int, call: int, recording: Recording, found: list[dict[int, None]]) -> bool:
    while index not in found[call]:
        if call == recording.calls[call].parent:
            return False
        call = recording.calls[call].parent
    return True
