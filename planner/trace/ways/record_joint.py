"""Records a step from the graph that `make_fx` makes of forward, loss and gradients together.

The second way: it watches operators as the first does, but neither modules nor memory, so that what breaks the hooks
and the following of storages does not break it. Blocks are found by the parameters that operators use.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from planner.trace.fake.fake_model import FakeModel
from planner.trace.flop_formulas import Kind
from planner.trace.flop_formulas.flops import operator_work
from planner.trace.flop_formulas.memory_traffic import LOOKUPS, WITHOUT_KERNEL
from planner.trace.operators import operator_warnings
from planner.trace.record.recording import UNTRACKED, NodePhase, Recording
from planner.trace.ways.fallback_owners import Owners
from planner.trace.ways.fallback_writer import RecordingWriter
from planner.trace.ways.joint_graph import joint_graph

LOST = (
    "Which module an operator belongs to is inferred from the parameters that it uses: operators without any count to "
    "the module before them, and the calls of modules without parameters are not known.",
    "Memory is that of a graph in which each tensor lives until its last use: training keeps what its variables hold, "
    "and what autograd saves, for longer. Over small models of every task, saved bytes were 0.82 to 1 of the exact "
    "ones, the peak 0.73 to 1, FLOPs 0.99 to 1.",
)
"""What this way does not know, or bounds only."""

aten = torch.ops.aten


def record_joint(
    model: FakeModel, device: Literal["cuda", "cpu"], autocast: Literal["bf16", "fp16"] | None = None
) -> Recording:
    """Returns the recording of one step, as `record_step` does.

    Args:
        model: The model; of fp32 weights where `autocast` is given.
        device: Whose kernels, and whose rules of autocast, to follow.
        autocast: The type of the products where forward and loss run under `torch.autocast`.

    Raises:
        StepError: The model raised, or gave no loss.
    """
    graph, phases = joint_graph(model, device, autocast)
    recording = _Reader(model, graph, phases).recording()
    return replace(recording, warnings=(*recording.warnings, *operator_warnings(recording.graph)))


class _Reader:
    """Reads the joint graph in order of execution and writes the recording."""

    def __init__(self, model: FakeModel, graph: fx.Graph, phases: dict[str, NodePhase]) -> None:
        held = dict(model.module.named_parameters())
        facts = model.facts.parameters
        default = next(iter(held.values())).dtype
        # A shortened model lacks some of the parameters.
        dtypes = [held[parameter.name].dtype if parameter.name in held else default for parameter in facts]
        self._writer = RecordingWriter(model.facts, dtypes)
        self._phases = phases
        *self._nodes, output = graph.nodes
        self._new: dict[fx.Node, fx.Node] = {}
        self._storages: dict[int, int] = {}
        """By the address of a storage: its index, or UNTRACKED for one that was there before the step."""
        self._needs_gradient: set[fx.Node] = set()
        self._warnings: dict[str, None] = {}
        self._held(held, {parameter.name: index for index, parameter in enumerate(facts)})
        self._loss, *gradients = output.args[0]
        trainable = [name for name, parameter in held.items() if parameter.requires_grad]
        self._gradient_of = {
            _address(node.meta["val"]): name
            for name, node in zip(trainable, gradients, strict=True)
            if node is not None
        }

    def _held(self, held: dict[str, nn.Parameter], number_of: dict[str, int]) -> None:
        placeholders = [node for node in self._nodes if node.op == "placeholder"]
        numbers = dict(zip(placeholders, (number_of[name] for name in held), strict=False))
        self._parameter_name: dict[Any, str] = dict(zip(placeholders, held, strict=False))
        self._owners = Owners(self._writer.facts.parameters, self._writer.facts.modules, numbers)
        for node, index in numbers.items():
            self._new[node] = self._writer.parameters[index]
            self._storages[_address(node.meta["val"])] = UNTRACKED
            if self._writer.facts.parameters[index].trainable:
                self._needs_gradient.add(node)

    def recording(self) -> Recording:
        """Returns the whole."""
        for node in self._nodes:
            value = node.meta.get("val")
            if node.op != "call_function":
                self._given(node, value)
            elif node.target is operator.getitem and isinstance(node.args[0], fx.Node):
                self._new[node] = self._writer.part(self._new[node.args[0]], node.args[1], _described(value))
            else:
                self._new[node] = self._operator(node, value)
            if isinstance(value, torch.Tensor) and node.op == "call_function":
                self._follow(node, value)
        self._bury()
        return self._writer.finish(self._new[self._loss], tuple(self._warnings))

    def _given(self, node: fx.Node, value: Any) -> None:
        """An input, or a tensor that the model made before the step."""
        if node not in self._new:
            self._new[node] = self._writer.constant("input", node.name, _described(value))
        if isinstance(value, torch.Tensor):
            self._storages[_address(value)] = UNTRACKED

    def _operator(self, node: fx.Node, value: Any) -> fx.Node:
        phase = self._phases.get(node.name, "backward")
        if phase == "forward":
            self._note_linear(node)
        is_view = bool(getattr(node.target, "is_view", False))
        if phase == "forward":
            call = self._writer.enter(self._owners.forward(node, is_view))
        elif phase == "recomputation":
            call = self._writer.call_of(self._owners.recomputed(node, is_view))
        else:
            made = self._gradient_of.get(_address(value)) if isinstance(value, torch.Tensor) else None
            call = self._writer.call_of(self._owners.backward(node, is_view, made))
        return self._writer.operator(
            node.target,
            map_arg(node.args, self._new.__getitem__),
            call=call,
            phase=phase,
            out=_described(value),
            keywords=map_arg(node.kwargs, self._new.__getitem__),
            work=self._work(node, value),
            is_kernel=not (is_view or node.target in WITHOUT_KERNEL),
            reads_rows=node.target in LOOKUPS,
        )

    def _note_linear(self, node: fx.Node) -> None:
        """torch.nn.functional.linear with a bias is `addmm(bias, rows, weight.t())` where rows are a matrix or more."""
        if node.target is not aten.addmm.default:
            return
        bias, _, transposed = node.args
        if isinstance(transposed, fx.Node) and transposed.target is aten.t.default:
            weight, of_bias = (self._parameter_name.get(each) for each in (transposed.args[0], bias))
            if weight is not None and of_bias is not None:
                self._writer.linear(weight, of_bias)

    def _work(self, node: fx.Node, value: Any) -> tuple[Kind, int]:
        args: Any = map_arg(node.args, lambda operand: operand.meta.get("val"))
        kwargs: Any = map_arg(node.kwargs, lambda operand: operand.meta.get("val"))
        work = operator_work(node.target, args, kwargs, value)
        if work is None:
            self._warnings.setdefault(f"{node.target} has no formula for its operations, and counts as none")
        return work or ("other", 0)

    def _follow(self, node: fx.Node, value: torch.Tensor) -> None:
        """Gives a result its storage, and tells the blocks what gradients reach."""
        new, address = self._new[node], _address(value)
        if address in self._storages:
            new.meta["storage"] = self._storages[address]
        else:
            self._storages[address] = self._writer.born(new, value.untyped_storage().nbytes())
            if address in self._gradient_of:
                self._writer.completes(self._gradient_of[address], self._storages[address])
        is_reached = any(operand in self._needs_gradient for operand in node.all_input_nodes)
        if is_reached and value.is_floating_point() and self._phases.get(node.name) == "forward":
            self._needs_gradient.add(node)
            new.meta["requires_grad"] = True

    def _bury(self) -> None:
        """Frees each storage after its last use; the loss and the gradients stay."""
        last_use: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for node in self._nodes:
            for each in (node, *node.all_input_nodes):
                value = each.meta.get("val")
                if isinstance(value, torch.Tensor) and "index" in self._new[node].meta:
                    last_use[_address(value)] = self._new[node].meta["index"]
                    sizes[_address(value)] = value.untyped_storage().nbytes()
        staying = {_address(self._loss.meta["val"]), *self._gradient_of}
        for address, index in last_use.items():
            storage = self._storages[address]
            if storage != UNTRACKED and address not in staying:
                self._writer.died(storage, sizes[address], index)


def _address(tensor: torch.Tensor) -> int:
    """Returns what tells a storage from all others: the values of the graph's nodes keep all of them alive."""
    return int(tensor.untyped_storage()._cdata)


def _described(value: Any) -> Any:
    """Returns shape and type of a tensor, or a list of them."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    return [value]
