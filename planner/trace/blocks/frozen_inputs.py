"""What a linear map of frozen weights reads and nobody keeps: torch frees it, an engine may keep it.

The gradient of the input needs the weight alone. DeepSpeed's stage 3 has a linear function that saves its input always.
"""

from __future__ import annotations

import torch
from torch import fx

from planner.trace.record.recording import UNTRACKED, ModelFacts, Recording

aten = torch.ops.aten

_PRODUCTS = {aten.mm.default: (0, 1), aten.addmm.default: (1, 2), aten.bmm.default: (0, 1)}
"""Operators that a linear map becomes, with the places of its input and of its weight."""
_SAME = frozenset({aten.t.default, aten.transpose.int, aten._to_copy.default, aten.expand.default, aten.view.default})


def frozen_inputs(facts: ModelFacts, recording: Recording) -> tuple[tuple[int, int], ...]:
    """Returns (operator, bytes) for each storage that dies in forward after a linear map of frozen weights has read it.

    Once each, with the first such operator; only where the input needs a gradient.
    """
    frozen = frozenset(parameter.name for parameter in facts.parameters if not parameter.trainable)
    if not frozen:
        return ()
    backward = (n.meta["index"] for n in recording.graph.nodes if n.meta.get("phase") not in (None, "forward"))
    first_of_backward = next(backward, 0)
    sizes = {event.storage: event.delta_bytes for event in recording.events if event.delta_bytes > 0}
    dies = {event.storage for event in recording.events if event.delta_bytes < 0 and event.operator < first_of_backward}
    found: dict[int, tuple[int, int]] = {}
    for node in recording.graph.nodes:
        places = _PRODUCTS.get(node.target)
        if places is None or node.meta["phase"] != "forward":
            continue
        read, weight = (node.args[place] for place in places)
        storage = read.meta.get("storage", UNTRACKED)
        if storage in dies and read.meta.get("requires_grad") and _parameter(weight) in frozen:
            found.setdefault(storage, (node.meta["index"], sizes[storage]))
    return tuple(found.values())


def _parameter(node: fx.Node) -> str | None:
    while node.target in _SAME and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node.meta.get("name") if node.meta.get("kind") == "parameter" else None
