"""Parameters of which autograd saves views: their memory lives as long as what is saved, whatever an engine frees."""

from __future__ import annotations

import operator

import torch
from torch import fx

from planner.trace.record.recording import UNTRACKED, ModelFacts, Recording

aten = torch.ops.aten


def saved_views(facts: ModelFacts, recording: Recording) -> tuple[int, ...]:
    """Returns the indices of the parameters of which forward makes views that backward reads, in their order.

    Not those that are the weight of `torch.nn.functional.linear` as they are, whose transpose is all that is saved: an
    engine that frees parameters puts a function of its own in its place, which saves the parameter itself.
    """
    found: set[str] = set()
    for node in recording.graph.nodes:
        if _phase(node) in (None, "forward"):
            continue
        for read in node.all_input_nodes:
            if read.op != "call_function" or _phase(read) != "forward":
                continue
            name = _viewed_parameter(read)
            is_linear = read.target is aten.t.default and name in recording.linear_weights
            if name is not None and not is_linear:
                found.add(name)
    return tuple(index for index, parameter in enumerate(facts.parameters) if parameter.name in found)


def _phase(node: fx.Node) -> str | None:
    phase: str | None = node.meta.get("part_of", node).meta.get("phase")
    return phase


def _viewed_parameter(node: fx.Node) -> str | None:
    """Returns the parameter that a result lies in; None where it lies in none."""
    while node.op == "call_function":
        is_part = node.target is operator.getitem
        if not node.all_input_nodes or (not is_part and node.meta.get("storage", UNTRACKED) != UNTRACKED):
            return None
        node = node.all_input_nodes[0]
    return str(node.meta["name"]) if node.meta.get("kind") == "parameter" else None
