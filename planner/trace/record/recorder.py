"""Runs beneath a training step and writes its `Recording`: a node for each operator, events for each storage."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planner.trace.flop_formulas.flops import operator_work, tensor_bytes
from planner.trace.flop_formulas.memory_traffic import LOOKUPS, WITHOUT_KERNEL
from planner.trace.record.model_line import model_line
from planner.trace.record.module_calls import ModuleCalls, with_gradient
from planner.trace.record.recording import UNTRACKED, Call, Recording
from planner.trace.record.storages import Storages
from planner.trace.record.uses import Uses

aten = torch.ops.aten

_QUESTIONS = frozenset(
    {
        torch.ops.prim.device.default,
        aten.sym_size.default,
        aten.sym_size.int,
        aten.sym_stride.default,
        aten.sym_stride.int,
        aten.sym_numel.default,
        aten.sym_storage_offset.default,
    }
)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records everything that runs while it is on; `names` are those of the modules of the model."""

    def __init__(self, names: dict[nn.Module, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = names
        self._graph = fx.Graph()
        self._calls = ModuleCalls(names)
        self._uses = Uses(self._calls)
        self._storages = Storages()
        self._nodes: dict[int, fx.Node] = {}
        """Of each storage, the first result that it held."""
        self._outputs: dict[int, tuple[int, list[fx.Node]]] = {}
        """Of each call, the operators before its end, and its output tensors that need a gradient."""
        self._warnings: dict[str, None] = {}
        self._trained: list[tuple[str, torch.Tensor]] = []
        self._completed: list[tuple[int, str]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and torch's guard against it would cost a third of the time."""
        return False

    def hold(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        """Gives a tensor of before the step its placeholder; its storage is not followed."""
        node = self._graph.placeholder(f"{kind}_{name}".replace(".", "_"))
        node.meta.update(kind=kind, name=name, storage=UNTRACKED, out=(tuple(tensor.shape), tensor.dtype))
        node.meta["bytes"] = tensor_bytes(tensor)
        tensor._trace_node = node  # type: ignore[attr-defined]
        self._storages.ignore(tensor)
        if kind == "parameter" and tensor.requires_grad:
            self._trained.append((name, tensor))

    def module_of(self, error: BaseException) -> str:
        """Returns the name of the innermost module whose forward the error left, or that runs now."""
        return self._calls.module_of(error)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While on, operators and module calls are recorded."""
        hooks = [
            tensor.register_post_accumulate_grad_hook(self._completes(name))  # type: ignore[no-untyped-call]
            for name, tensor in self._trained
        ]
        try:
            with self._calls.following(self._note_output), self._uses.noting(self._names), self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def expect_backward(self) -> None:
        """Says that forward has given its loss: what runs from now on is backward's."""
        self._calls.expect_backward()

    def finish(self, loss: torch.Tensor, gradients: list[torch.Tensor]) -> Recording:
        """Closes the graph with the loss as its output and returns what was recorded."""
        self._graph.output(self._operand(loss))
        self._graph.lint()
        held = [self._storages.index(gradient) for gradient in gradients]
        self._storages.end()
        return Recording(
            graph=self._graph,
            calls=tuple(self._ended(index, call) for index, call in enumerate(self._calls.calls)),
            events=tuple(self._storages.events),
            gradients=frozenset(held) - {UNTRACKED},
            completed=tuple(self._completed),
            accesses=tuple(self._uses.accesses),
            linears=tuple(self._uses.linears),
            linear_weights=frozenset(self._uses.linear_weights),
            warnings=tuple(self._warnings),
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # Autograd asks twice for each operator; the way down costs more than the rest.
        if func in _QUESTIONS:
            return func(*args, **kwargs)
        operands = tuple([self._operand(item) for item in args])
        keywords = {key: self._operand(item) for key, item in kwargs.items()} if kwargs else {}
        result = func(*args, **kwargs)
        node = self._graph.create_node("call_function", func, operands, keywords)
        self._describe(node, func, args, kwargs, result)
        self._results(node, result)
        self._storages.num_operators += 1
        return result

    def _operand(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            node = item.__dict__.get("_trace_node")
            # A tensor of the model's that is no parameter may have the node of an earlier run.
            if node is None or node.graph is not self._graph:
                node = self._node_by_storage(item)
            if item.requires_grad:
                node.meta["requires_grad"] = True
            return node
        if isinstance(item, list | tuple):
            return type(item)([self._operand(entry) for entry in item])
        return item

    def _node_by_storage(self, tensor: torch.Tensor) -> fx.Node:
        """Autograd returns what it saved in new tensor objects: their storage tells which result they are."""
        node = self._nodes.get(self._storages.index(tensor))
        if node is None:
            node = self._graph.create_node("get_attr", f"constant_{len(self._graph.nodes)}")
            node.meta.update(kind="constant", name="", storage=UNTRACKED, out=(tuple(tensor.shape), tensor.dtype))
            node.meta["bytes"] = tensor_bytes(tensor)
            value = getattr(tensor, "_shadow_value", None) if isinstance(tensor, FakeTensor) else tensor
            if value is not None:
                node.meta["value"] = value
        tensor._trace_node = node  # type: ignore[attr-defined]
        return node

    def _describe(self, node: fx.Node, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        phase, call = self._calls.place()
        work = operator_work(func, args, kwargs, result)
        kind, flop = work or ("other", 0)
        if work is None:
            self._warn_of_unknown_work(func, phase, call)
        meta = node.meta
        meta["index"], meta["phase"], meta["call"] = self._storages.num_operators, phase, call
        meta["fqn"], meta["flop"] = self._calls.calls[call].module, flop
        if flop:
            meta["kind_of_work"], meta["dtype"] = kind, _dtype(args)
        cast = _cast_parameter(func, node)
        if cast is not None:
            meta["param_cast"] = cast
        meta["is_kernel"] = not (func.is_view or func in WITHOUT_KERNEL)
        meta["io_bytes"] = sum(operand.meta.get("bytes", 0) for operand in node.all_input_nodes)

    def _warn_of_unknown_work(self, func: Any, phase: str, call: int) -> None:
        line = model_line() if phase != "backward" else None
        where = line or f"backward of {self._calls.calls[call].module or 'the model'}"
        note = (
            f"{where}: {func} has no formula for its operations, and counts as none; register one with "
            "torch.utils.flop_counter.register_flop_formula"
        )
        self._warnings[note] = None

    def _results(self, node: fx.Node, result: Any) -> None:
        meta = node.meta
        if isinstance(result, torch.Tensor):
            self._result(node, result)
            written = meta["bytes"]
        else:
            written = 0
            meta["storage"] = UNTRACKED
            for position, item in enumerate(result) if isinstance(result, list | tuple) else ():
                if isinstance(item, torch.Tensor):
                    part = self._graph.create_node("call_function", operator.getitem, (node, position))
                    part.meta.update(index=meta["index"], part_of=node)
                    self._result(part, item)
                    written += part.meta["bytes"]
            meta["out"] = [
                (tuple(item.shape), item.dtype) if isinstance(item, torch.Tensor) else item
                for item in (result if isinstance(result, list | tuple) else [result])
            ]
        # Of a table, only the rows that are looked up are read.
        read = written if node.target in LOOKUPS else meta["io_bytes"]
        meta["io_bytes"] = read + written if meta["is_kernel"] else 0

    def _result(self, node: fx.Node, tensor: torch.Tensor) -> None:
        meta = node.meta
        meta["out"], meta["bytes"] = (tuple(tensor.shape), tensor.dtype), tensor_bytes(tensor)
        meta["storage"] = storage = self._storages.follow(tensor)
        if storage != UNTRACKED and storage not in self._nodes:
            self._nodes[storage] = node
        tensor._trace_node = node  # type: ignore[attr-defined]

    def _completes(self, name: str) -> Callable[[torch.Tensor], None]:
        return lambda _: self._completed.append((self._storages.last_operator, name))

    def _note_output(self, call: int, output: Any) -> None:
        nodes = [self._operand(tensor) for tensor in with_gradient(output)]
        self._outputs[call] = self._storages.num_operators, nodes

    def _ended(self, index: int, call: Call) -> Call:
        """Returns the call with what is known when all is recorded. The root gives the loss."""
        end, outputs = self._outputs.get(index, (0, []))
        read = [node for node in outputs if any(_reads_after(end, user) for user in node.users)]
        return call._replace(num_outputs=len(read) if index else 1)


def _cast_parameter(func: Any, node: fx.Node) -> str | None:
    """Returns the parameter that the operator copies into another type, as autocast does; None for other operators."""
    if func is not aten._to_copy.default:
        return None
    meta = node.all_input_nodes[0].meta
    return str(meta["name"]) if meta.get("kind") == "parameter" else None


def _dtype(args: Any) -> str:
    """Returns the type of number of the first tensor among the operands."""
    found = next((str(leaf.dtype) for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)), "")
    return found.removeprefix("torch.")


def _reads_after(end: int, node: fx.Node) -> bool:
    return node.meta.get("phase") == "forward" and node.meta["index"] >= end
