"""A step that is not run: a walk over the modules that writes down what their layers would do at the least.

The last way, for a model whose forward cannot run here. Parameters, ties, types and what is frozen are exact. Each
module that holds parameters is taken to run once, in the order in which the model holds it, on the rows of the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import fx, nn

from planner.trace.fake.fake_model import DTYPES, FakeModel
from planner.trace.flop_formulas import Kind
from planner.trace.record.recording import Recording
from planner.trace.ways.fallback_writer import RecordingWriter
from planner.trace.ways.static_rows import Entries, Rows, rows_after

LOST = (
    "The model did not run: its layers are taken to run once each, in the order in which the model holds them, on what "
    "the layer before makes, or on the tensor of the batch that fits.",
    "Operations are those of layers with parameters: 2 x elements of the weight x rows forward, and as many again for "
    "each of the gradients of input and weight. Attention's own products, and whatever forward computes without a "
    "layer, are not counted; stacked experts count as if every token went through all of them.",
    "Saved bytes are the outputs of these layers, from forward until backward has passed them; what functions such as "
    "softmax, gelu or the loss save is not counted.",
    "Over small models of every task, FLOPs were 0.13 to 8.2 of the exact ones and 0.5 to 2 for eight in ten; saved "
    "bytes 0.1 to 3, and 0.4 to 1.3 for eight in ten.",
    "Whether layers can be recomputed in backward is not known, so no plan recomputes them.",
)
"""What this way does not know, or bounds only."""


@dataclass(frozen=True, slots=True)
class _Layer:
    module: nn.Module
    call: int
    parameters: tuple[int, ...]
    """Indices of the trainable parameters that it holds."""
    work: tuple[Kind, int]
    rows: Rows
    output: fx.Node
    storage: int
    needs_input_gradient: bool


def record_static(model: FakeModel, autocast: Literal["bf16", "fp16"] | None = None) -> Recording:
    """Returns the recording of a step that only the structure of the model tells.

    Args:
        model: The model; of fp32 weights where `autocast` is given.
        autocast: The type of the products, and of what layers give, where the step runs under `torch.autocast`.
    """
    return _Walker(model, None if autocast is None else DTYPES[autocast]).recording()


class _Walker:
    def __init__(self, model: FakeModel, autocast: torch.dtype | None) -> None:
        self._model = model
        tensors = dict(model.module.named_parameters(remove_duplicate=False))
        held = [tensors.get(parameter.name) for parameter in model.facts.parameters]  # a shortened model lacks some
        weights = next((tensor.dtype for tensor in held if tensor is not None), torch.float32)
        dtypes = [weights if tensor is None else tensor.dtype for tensor in held]
        self._dtype = autocast or weights
        self._writer = RecordingWriter(model.facts, dtypes, product_dtype=self._dtype)
        self._index_of = {
            name: index
            for index, parameter in enumerate(model.facts.parameters)
            for name in (parameter.name, *parameter.aliases)
        }
        self._layers: list[_Layer] = []

    def recording(self) -> Recording:
        """Writes forward in the order of the model, the loss, and backward in reverse."""
        entries = Entries(self._model.batch, self._model.shadow.value)
        rows = entries.first()
        for name, module in _layers(self._model.module, "", self._model.names):
            self._layers.append(self._forward(name, module, entries.before(module, rows)))
            rows = self._layers[-1].rows
        call = self._writer.enter("")
        operands = tuple(layer.output for layer in self._layers[-1:])
        loss = self._writer.operator(torch.mean, operands, call=call, phase="forward", out=((), torch.float32))
        self._writer.born(loss, loss.meta["bytes"])
        if self._layers:
            self._backward(call)
        return self._writer.finish(loss)

    def _forward(self, name: str, module: nn.Module, rows: Rows) -> _Layer:
        held = self._held(name, module)
        before = self._layers[-1] if self._layers else None
        operands = (*((before.output,) if before else ()), *(self._writer.parameters[index] for index in held))
        after, work = rows_after(module, rows), _work(module, rows)
        call = self._writer.enter(name)
        out = (after.shape, self._dtype)
        node = self._writer.operator(type(module), operands, call=call, phase="forward", out=out, work=work)
        storage = self._writer.born(node, node.meta["bytes"])
        if isinstance(module, nn.Linear) and module.bias is not None:
            weight, bias = (self._model.facts.parameters[index].name for index in held)
            self._writer.linear(weight, bias)
        trainable = tuple(index for index in held if self._model.facts.parameters[index].trainable)
        needs = before is not None and (before.needs_input_gradient or bool(before.parameters))
        return _Layer(module, call, trainable, work, after, node, storage, needs)

    def _backward(self, call: int) -> None:
        """Writes the derivatives; each needs the output of the layer before, and the gradient of its own."""
        uses = Counter(index for layer in self._layers for index in layer.parameters)
        alive: dict[int, int] = {}
        last = self._layers[-1]
        gradient = self._gradient(torch.mean, (last.output,), last, call)
        for position, layer in reversed(list(enumerate(self._layers))):
            before = self._layers[position - 1] if position else None
            self._weights(layer, gradient, uses, alive)
            self._writer.died(layer.storage, layer.output.meta["bytes"])
            if before is None or not layer.needs_input_gradient:
                self._writer.died(gradient.meta["storage"], gradient.meta["bytes"])
                for earlier in self._layers[:position]:
                    self._writer.died(earlier.storage, earlier.output.meta["bytes"])
                return
            further = self._gradient(type(layer.module), (gradient,), before, layer.call, layer.work)
            self._writer.died(gradient.meta["storage"], gradient.meta["bytes"])
            gradient = further

    def _gradient(
        self,
        target: object,
        operands: tuple[fx.Node, ...],
        of: _Layer,
        call: int,
        work: tuple[Kind, int] = ("other", 0),
    ) -> fx.Node:
        """Writes the operator that makes the gradient of a layer's output."""
        out = (of.rows.shape, self._dtype)
        node = self._writer.operator(target, operands, call=call, phase="backward", out=out, work=work)
        self._writer.born(node, node.meta["bytes"])
        return node

    def _weights(self, layer: _Layer, gradient: fx.Node, uses: Counter[int], alive: dict[int, int]) -> None:
        """Writes the gradients of a layer's parameters; one that several layers share is whole after the last."""
        kind, flop = layer.work
        elements = sum(matrix.numel() for matrix in _matrices(layer.module))
        for index in layer.parameters:
            parameter = self._writer.parameters[index]
            known = self._model.facts.parameters[index]
            share = known.num_elements if len(known.shape) > 1 and known.shape[0] > 1 and flop else 0
            node = self._writer.operator(
                type(layer.module),
                (gradient, layer.output),
                call=layer.call,
                phase="backward",
                out=parameter.meta["out"],
                work=(kind, flop * share // elements) if share else ("other", 0),
            )
            if index not in alive:
                alive[index] = self._writer.born(node, node.meta["bytes"])
            uses[index] -= 1
            if not uses[index]:
                self._writer.completes(self._model.facts.parameters[index].name, alive[index])

    def _held(self, name: str, module: nn.Module) -> list[int]:
        prefix = f"{name}." if name else ""
        return [self._index_of[prefix + own] for own, tensor in module._parameters.items() if tensor is not None]


def _layers(module: nn.Module, name: str, names: dict[nn.Module, str]) -> Iterator[tuple[str, nn.Module]]:
    """Yields the modules that hold parameters, and those of torch's own that have no others in them."""
    children = list(module.children())
    is_plain = not children and type(module).__module__.startswith("torch.nn")
    if is_plain or any(tensor is not None for tensor in module._parameters.values()):
        yield name, module
    for child in children:
        yield from _layers(child, names[child], names)


def _work(module: nn.Module, rows: Rows) -> tuple[Kind, int]:
    """Returns the operations of one forward: two for each element of a weight and each row that it is applied to."""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "other", 0
    elements = sum(matrix.numel() for matrix in _matrices(module))
    if not elements:
        return "other", 0
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return "convolution", 2 * elements * rows_after(module, rows).count
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        return "convolution", 2 * elements * rows.count
    if isinstance(module, nn.Linear):
        return "matmul", 2 * elements * rows_after(module, rows).count
    return "recurrence" if isinstance(module, nn.RNNBase) else "matmul", 2 * elements * rows.count


def _matrices(module: nn.Module) -> list[torch.Tensor]:
    """Returns the parameters that rows are multiplied with; a first axis of length 1 is one to broadcast along."""
    return [p for p in module._parameters.values() if p is not None and p.dim() > 1 and p.shape[0] > 1]
