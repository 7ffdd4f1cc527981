"""Runs the emitted graph on real tensors: if it is right, its loss is the model's."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from planner.trace.record.recording import Recording
from planner.verify.real_step import RealModel, as_traced


class MissingValueError(Exception):
    """The graph reads a tensor whose value the trace does not know."""


def replay(recording: Recording, model: RealModel) -> float:
    """Returns the loss of the recorded forward with the model's real parameters, buffers and inputs.

    Raises:
        MissingValueError: The graph reads a tensor that is none of these and has no known value.
    """
    held = {"parameter": model.parameters, "buffer": model.buffers}
    # A step writes into some buffers, and may write into its inputs.
    values: dict[tuple[str, str], torch.Tensor] = {
        (kind, name): tensor.clone() for kind, tensors in held.items() for name, tensor in tensors.items()
    }
    values |= {("input", str(position)): tensor.clone() for position, tensor in _numbered(recording, model)}
    with as_traced(None), torch.no_grad():
        loss = _Forward(recording.graph, values).run()
    return float(loss)


def _numbered(recording: Recording, model: RealModel) -> list[tuple[str, torch.Tensor]]:
    """Inputs are named by their place among the batch's leaves, of which some are no tensors."""
    names = [node.meta["name"] for node in recording.graph.nodes if node.meta.get("kind") == "input"]
    return list(zip(names, model.inputs, strict=True))


class _Forward(fx.Interpreter):
    """Runs what forward ran; nothing of it needs what backward ran."""

    def __init__(self, graph: fx.Graph, values: dict[tuple[str, str], torch.Tensor]) -> None:
        super().__init__(fx.GraphModule(nn.Module(), fx.Graph()), graph=graph)
        self._values = values

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "placeholder":
            return self._values[n.meta["kind"], n.meta["name"]]
        if n.op == "get_attr":
            return n.meta.get("value")
        node = n.meta.get("part_of", n)
        if n.op == "call_function" and node.meta["phase"] != "forward":
            return None
        for operand in n.all_input_nodes:
            if operand.op == "get_attr" and "value" not in operand.meta:
                raise MissingValueError(f"{n.target} reads a constant of shape {operand.meta['out'][0]}")
        return super().run_node(n)
