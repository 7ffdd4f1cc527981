"""The order in which DeepSpeed's stage 3 hooks run in one micro-batch: what is fetched, what is released, and when.

DeepSpeed hooks every module, those without parameters too: before its forward (fetch), after it (release), before its
backward (fetch) and, where its inputs require gradients, after it (release). Autograd runs nodes in the reverse order
of their creation, and the hooks of backward are nodes made at a module's end and start, so that backward is the
forward's timeline reversed.

Source: `DeepSpeedZeRoOffload._register_deepspeed_module`, deepspeed/runtime/zero/parameter_offload.py, 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.leaves import leaves_of
from costmodels.engine import Assignment
from costmodels.strategy import Strategy
from costmodels.workload import ModuleCall, Phase, Workload

_Leaves = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Hook:
    """One run of a hook."""

    kind: Literal["fetch", "release"]
    phase: Phase
    """Of the module: forward also when a recomputed block runs again within backward."""
    module: str
    parameters: tuple[int, ...]
    """In the order of DeepSpeed's own numbers, which `zero.Init` gives at the end of each module's construction: those
    of children that the module reads itself, then its own."""
    segment: int
    """Index into `Workload.segments` of the segment that runs."""
    is_leaf: bool = False
    """The module is gathered whole."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """A call's start or end in forward."""

    is_start: bool
    call: ModuleCall
    forward_segment: int
    backward_segment: int
    recomputed: bool
    """The call is of a module that is run again in backward."""
    is_leaf: bool


def hooks(workload: Workload, assignment: Assignment, knobs: Knobs) -> tuple[Hook, ...]:
    """Returns the hooks of one micro-batch in order, forward then backward.

    Assumes what `runtime.recompute` does: the forward of a recomputed module is wrapped beneath its own hooks, and
    runs again right after the module's own fetch for backward, before any child's.
    """
    # Degrees do not matter here, so that all strategies share what is worked out once.
    leaves = tuple(leaves_of(workload, knobs).items())
    return _hooks(workload, tuple(Strategy(1, 1, 1, 1, strategy.recompute) for strategy in assignment), leaves)


@lru_cache(maxsize=32)
def _hooks(workload: Workload, assignment: Assignment, leaves: _Leaves) -> tuple[Hook, ...]:
    timeline = tuple(
        replace(moment, call=replace(moment.call, parameters=_as_numbered(workload, moment.call)))
        for moment in _timeline(workload, assignment, dict(leaves))
    )
    forward = tuple(hook for moment in timeline for hook in _forward_hooks(moment, moment.forward_segment))
    return Order((*forward, *_backward(timeline)))


class Order(tuple[Hook, ...]):
    """The hooks of a micro-batch: thousands, and asked for again and again, so that they keep their hash."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def _timeline(workload: Workload, assignment: Assignment, leaves: dict[str, tuple[int, ...]]) -> Iterator[_Moment]:
    """Yields starts and ends. A call ends when the next one is not deeper."""
    recomputed = {
        block.name
        for block in workload.blocks
        if block.recomputable and assignment and assignment[block.block_class].recompute == "full"
    }
    backward_of = _backward_segments(workload)
    opened: list[_Moment] = []
    for index, segment in enumerate(workload.segments):
        if segment.phase != "forward":
            continue
        for call in segment.calls:
            while opened and opened[-1].call.depth >= call.depth:
                yield replace(opened.pop(), is_start=False)
            if opened and opened[-1].call.module in leaves:
                continue
            opened.append(
                _Moment(
                    is_start=True,
                    call=replace(call, parameters=leaves.get(call.module, call.parameters)),
                    forward_segment=index,
                    backward_segment=backward_of.get(call.module, backward_of.get(f"#{segment.block}", index)),
                    recomputed=call.module in recomputed,
                    is_leaf=call.module in leaves,
                )
            )
            yield opened[-1]
    while opened:
        yield replace(opened.pop(), is_start=False)


def _as_numbered(workload: Workload, call: ModuleCall) -> tuple[int, ...]:
    def is_own(index: int) -> bool:
        parameter = workload.parameters[index]
        return any(name.rpartition(".")[0] == call.module for name in (parameter.name, *parameter.aliases))

    return tuple(sorted(call.parameters, key=is_own))


def _backward_segments(workload: Workload) -> dict[str, int]:
    """Returns the backward segment of each module, and of each block as `#index`; the last one where there are more."""
    found: dict[str, int] = {}
    for index, segment in enumerate(workload.segments):
        if segment.phase == "backward":
            found[f"#{segment.block}"] = index
            found.update({call.module: index for call in segment.calls})
    return found


def _forward_hooks(moment: _Moment, segment: int) -> tuple[Hook, ...]:
    kind: Literal["fetch", "release"] = "fetch" if moment.is_start else "release"
    call = moment.call
    return (Hook(kind, "forward", call.module, call.parameters, segment, moment.is_leaf),) * call.num_places


def _backward(timeline: tuple[_Moment, ...]) -> Iterator[Hook]:
    """Yields the hooks of backward.

    A fetch comes with each output that a gradient reaches. DeepSpeed counts the inputs of a module's last forward, and
    releases when so many gradients have come: where a module has run more than once, after the last of them only.
    """
    released: set[str] = set()
    for index in range(len(timeline) - 1, -1, -1):
        moment = timeline[index]
        call, segment = moment.call, moment.backward_segment
        if moment.is_start:
            if call.inputs_require_grad and call.num_outputs and call.module not in released:
                yield Hook("release", "backward", call.module, call.parameters, segment, moment.is_leaf)
            released.add(call.module)
            continue
        for _ in range(call.num_outputs * call.num_places):
            yield Hook("fetch", "backward", call.module, call.parameters, segment, moment.is_leaf)
        if moment.recomputed and call.num_outputs:
            for again in _within(timeline, index):
                released.discard(again.call.module)
                yield from _forward_hooks(again, segment)


def _within(timeline: tuple[_Moment, ...], end: int) -> tuple[_Moment, ...]:
    """Returns the moments between the start of the call that ends at `end` and that end."""
    call = timeline[end].call
    start = max(i for i in range(end) if timeline[i].is_start and timeline[i].call.module == call.module)
    return timeline[start + 1 : end]
