"""Cuts a recorded step into segments: stretches inside one block in one phase, with what each costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx

from costmodels.workload import ModuleCall, Phase
from planner.trace.layout import BlockLayout
from planner.trace.liveness import activation_events
from planner.trace.recording import MemoryEvent, ModelFacts, Recording


@dataclass(frozen=True, slots=True)
class MeasuredSegment:
    """A segment at one micro-batch size; the fields are those of `costmodels.workload.Segment`."""

    block: int
    phase: Phase
    calls: tuple[ModuleCall, ...]
    flop: int
    io_bytes: int
    product_io_bytes: int
    num_operators: int
    peak_bytes: int
    net_bytes: int
    kept_bytes: int
    gradients: tuple[int, ...]


@dataclass(slots=True)
class _Stretch:
    block: int
    phase: Phase
    nodes: list[fx.Node]


def measure_segments(facts: ModelFacts, layout: BlockLayout, recording: Recording) -> list[MeasuredSegment]:
    """Returns all segments of forward, then all of backward, in order of execution."""
    stretches = list(_stretches(layout, recording))
    segment_of = [position for position, stretch in enumerate(stretches) for _ in stretch.nodes]
    calls = _calls(facts, recording, segment_of, stretches)
    events: list[list[MemoryEvent]] = [[] for _ in stretches]
    for event in activation_events(recording):
        events[segment_of[event.operator]].append(event)
    gradients = _gradients(facts, recording, segment_of, len(stretches))
    readers = _readers(layout, recording)
    born_in: dict[int, int] = {}
    measured = []
    for position, stretch in enumerate(stretches):
        for event in events[position]:
            if event.delta_bytes > 0:
                born_in[event.storage] = position
        peak, net = _peak_and_net(events[position])
        measured.append(
            MeasuredSegment(
                block=stretch.block,
                phase=stretch.phase,
                calls=tuple(calls[position]),
                flop=sum(node.meta["flop"] for node in stretch.nodes),
                io_bytes=sum(node.meta["io_bytes"] for node in stretch.nodes if not node.meta["flop"]),
                product_io_bytes=sum(node.meta["io_bytes"] for node in stretch.nodes if node.meta["flop"]),
                num_operators=sum(node.meta["is_kernel"] for node in stretch.nodes),
                peak_bytes=peak,
                net_bytes=net,
                kept_bytes=_kept(stretch, position, events[position], readers, born_in),
                gradients=tuple(gradients[position]),
            )
        )
    return measured


def _gradients(facts: ModelFacts, recording: Recording, segment_of: list[int], num_segments: int) -> list[list[int]]:
    """Returns for each segment the parameters whose gradients autograd completes in it, in order of time."""
    index_of = {parameter.name: index for index, parameter in enumerate(facts.parameters)}
    gradients: list[list[int]] = [[] for _ in range(num_segments)]
    for operator, name in recording.completed:
        gradients[segment_of[operator]].append(index_of[name])
    return gradients


def _stretches(layout: BlockLayout, recording: Recording) -> Iterator[_Stretch]:
    """Yields runs of operators. Kernels cut them; views go with the kernel of their block, before or after them."""
    current: _Stretch | None = None
    views: list[fx.Node] = []
    for node in recording.graph.nodes:
        if node.op != "call_function" or "part_of" in node.meta:
            continue
        if not node.meta["is_kernel"]:
            views.append(node)
            continue
        block, phase = layout.block_of[node.meta["fqn"]], node.meta["phase"]
        if current is None:
            current = _Stretch(block, phase, [])
        elif (block, phase) != (current.block, current.phase):
            ahead = next((at for at, view in enumerate(views) if _belongs(view, block, phase, layout)), len(views))
            current.nodes += views[:ahead]
            views = views[ahead:]
            yield current
            current = _Stretch(block, phase, [])
        current.nodes += [*views, node]
        views = []
    if current is not None:
        current.nodes += views
        yield current


def _belongs(node: fx.Node, block: int, phase: Phase, layout: BlockLayout) -> bool:
    return node.meta["phase"] == phase and layout.block_of[node.meta["fqn"]] == block


def _peak_and_net(events: list[MemoryEvent]) -> tuple[int, int]:
    live = peak = 0
    for event in events:
        live += event.delta_bytes
        peak = max(peak, live)
    return peak, live


def _readers(layout: BlockLayout, recording: Recording) -> dict[int, set[int]]:
    """Returns the blocks whose forward reads each storage."""
    readers: dict[int, set[int]] = {}
    for node in recording.graph.nodes:
        if node.op == "call_function" and node.meta.get("phase") == "forward":
            block = layout.block_of[node.meta["fqn"]]
            for operand in node.all_input_nodes:
                readers.setdefault(operand.meta["storage"], set()).add(block)
    return readers


def _kept(
    stretch: _Stretch,
    position: int,
    events: list[MemoryEvent],
    readers: dict[int, set[int]],
    born_in: dict[int, int],
) -> int:
    """Returns what stays of the net bytes when the block runs without saving anything for backward.

    That is what it made and other blocks read, less what died here of others' making. What the block itself read stays:
    its inputs are held to run it again.
    """
    if stretch.phase == "backward":
        return 0
    dead = {event.storage for event in events if event.delta_bytes < 0}
    kept = 0
    for event in events:
        read_by = readers.get(event.storage, set())
        is_shared_birth = event.delta_bytes > 0 and event.storage not in dead and bool(read_by - {stretch.block})
        is_foreign_death = event.delta_bytes < 0 and born_in[event.storage] != position and stretch.block not in read_by
        if is_shared_birth or is_foreign_death:
            kept += event.delta_bytes
    return kept


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
            call, phase = node.meta["call"], node.meta["phase"]
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
        if node.op != "call_function" or node.meta.get("phase") != recording.calls[node.meta.get("call", 0)].phase:
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
