"""Runs beneath a training step and writes its `Recording`: each operator becomes a node, each storage has its events.

Which module an operator of backward belongs to is found by autograd's sequence numbers: an operator of forward creates
the node of its derivative, and that number is known when the derivative runs.
"""

from __future__ import annotations

import bisect
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planner.trace.flops import operator_work, tensor_bytes
from planner.trace.model_line import model_line
from planner.trace.recording import UNTRACKED, Call, MemoryEvent, NodePhase, Recording

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
_LOOKUPS = frozenset({aten.embedding.default, aten.gather.default, aten.index.Tensor, aten.index_select.default})
_FREE = frozenset(
    {
        aten._unsafe_view.default,
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }
)
"""Operators that run no kernel, beside the views."""

_NO_SEQUENCE = 1 << 62
"""Nodes that collect gradients have the greatest number there is, whatever they belong to."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records everything that runs while it is on; `names` are those of the modules of the model."""

    def __init__(self, names: dict[nn.Module, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = names
        self._graph = fx.Graph()
        self._calls = [Call("", 0, "forward")]
        self._stack = [0]
        self._events: list[MemoryEvent] = []
        self._num_operators = 0
        self._num_storages = 0
        self._storage_of: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[Any]] = {}
        self._sequence: list[int] = []
        self._sequence_call: list[int] = []
        self._last_call = 0
        self._num_applied = 0
        """How many functions of the model's own run again, one within the other."""
        self._nodes: dict[int, fx.Node] = {}
        self._warnings: list[str] = []
        self._trained: list[tuple[str, torch.Tensor]] = []
        self._completed: list[tuple[int, str]] = []
        self._linears: dict[tuple[str, str], None] = {}
        self._accesses: dict[tuple[int, str], None] = {}
        self._given_twice: dict[int, set[int]] = {}
        """Of the calls with one tensor as several positional arguments: its storages. An engine that wraps arguments
        gives such a module different tensors, and torch's attention then takes its weight apart."""
        self._outputs: dict[int, tuple[int, list[fx.Node]]] = {}
        self._has_loss = False
        self._failure: BaseException | None = None
        self._failed_in = ""

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
        self._storage_of[tensor.untyped_storage()._cdata] = UNTRACKED
        if kind == "parameter" and tensor.requires_grad:
            self._trained.append((name, tensor))

    def module_of(self, error: BaseException) -> str:
        """Returns the name of the innermost module whose forward the error left, or that runs now."""
        return self._failed_in if error is self._failure else self._calls[self._stack[-1]].module

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While on, operators and module calls are recorded."""
        hooks = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
            *(
                tensor.register_post_accumulate_grad_hook(self._completes(name))  # type: ignore[no-untyped-call]
                for name, tensor in self._trained
            ),
        ]
        plain = {module: module._parameters for module in self._names}
        for module, parameters in plain.items():
            module._parameters = _Noting(parameters, self._note_access)
        try:
            with self, self._noting_functions():
                yield
        finally:
            for hook in hooks:
                hook.remove()
            for module, parameters in plain.items():
                module._parameters = parameters

    def expect_backward(self) -> None:
        """Says that forward has given its loss: what runs from now on is backward's."""
        self._has_loss = True

    def finish(self, loss: torch.Tensor, gradients: list[torch.Tensor]) -> Recording:
        """Closes the graph with the loss as its output and returns what was recorded."""
        self._graph.output(self._operand(loss))
        self._graph.lint()
        held = [self._storage_of.get(gradient.untyped_storage()._cdata, UNTRACKED) for gradient in gradients]
        self._watches.clear()
        return Recording(
            graph=self._graph,
            calls=tuple(self._ended(index, call) for index, call in enumerate(self._calls)),
            events=tuple(self._events),
            gradients=frozenset(held) - {UNTRACKED},
            completed=tuple(self._completed),
            accesses=tuple(self._accesses),
            linears=tuple(self._linears),
            warnings=tuple(self._warnings),
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _QUESTIONS:
            return func(*args, **kwargs)
        operands = tuple([self._operand(item) for item in args])
        keywords = {key: self._operand(item) for key, item in kwargs.items()} if kwargs else {}
        result = func(*args, **kwargs)
        node = self._graph.create_node("call_function", func, operands, keywords)
        self._describe(node, func, args, kwargs, result)
        self._results(node, result)
        self._num_operators += 1
        return result

    def _operand(self, item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            node = item.__dict__.get("_trace_node")
            if (
                node is None or node.graph is not self._graph
            ):  # a tensor of the model's that is no parameter outlives runs
                node = self._node_by_storage(item)
            if item.requires_grad:
                node.meta["requires_grad"] = True
            return node
        if isinstance(item, list | tuple):
            return type(item)([self._operand(entry) for entry in item])
        return item

    def _node_by_storage(self, tensor: torch.Tensor) -> fx.Node:
        """Autograd returns what it saved in new tensor objects: their storage tells which result they are."""
        storage = self._storage_of.get(tensor.untyped_storage()._cdata)
        node = self._nodes.get(storage) if storage is not None and storage != UNTRACKED else None
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
        phase, call = self._place()
        work = operator_work(func, args, kwargs, result)
        kind, flop = work or ("other", 0)
        if work is None:
            self._warn_of_unknown_work(func, phase, call)
        meta = node.meta
        meta["index"], meta["phase"], meta["call"] = self._num_operators, phase, call
        meta["fqn"], meta["flop"] = self._calls[call].module, flop
        if flop:
            meta["kind_of_work"], meta["dtype"] = kind, _dtype(args)
        cast = _cast_parameter(func, node)
        if cast is not None:
            meta["param_cast"] = cast
        meta["is_kernel"] = not (func.is_view or func in _FREE)
        meta["io_bytes"] = sum(operand.meta.get("bytes", 0) for operand in node.all_input_nodes)

    def _warn_of_unknown_work(self, func: Any, phase: str, call: int) -> None:
        line = model_line() if phase != "backward" else None
        where = line or f"backward of {self._calls[call].module or 'the model'}"
        note = (
            f"{where}: {func} has no formula for its operations, and counts as none; register one with "
            "torch.utils.flop_counter.register_flop_formula"
        )
        if note not in self._warnings:
            self._warnings.append(note)

    def _place(self) -> tuple[NodePhase, int]:
        """Returns the phase and the module call that the operator which runs now belongs to."""
        in_backward = torch._C._current_graph_task_id() != -1
        if self._has_loss and not in_backward:
            return "backward", self._last_call  # The loss's own gradient, which autograd is then given.
        # In backward, a checkpoint runs its forward again: with gradients on, but for what turns them off there.
        again = in_backward and (torch.is_grad_enabled() or len(self._stack) > 1 or self._num_applied > 0)
        if in_backward and not again:
            self._last_call = self._call_of_derivative()
            return "backward", self._last_call
        # Between the modules that a checkpoint calls again, it is the derivative that asked for them that tells.
        call = self._call_of_derivative() if in_backward and len(self._stack) == 1 else self._stack[-1]
        sequence = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]
        if not self._sequence or sequence > self._sequence[-1]:
            self._sequence.append(sequence)
            self._sequence_call.append(call)
        self._last_call = call
        return "recomputation" if again else "forward", call

    def _call_of_derivative(self) -> int:
        """Returns the module call whose derivative autograd computes now; the last one where it does not say."""
        node = torch._C._current_autograd_node()
        sequence = node._sequence_nr() if node is not None else -1
        place = bisect.bisect_left(self._sequence, sequence)
        known = 0 <= sequence < _NO_SEQUENCE and place < len(self._sequence)
        return self._sequence_call[place] if known else self._last_call

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
        read = written if node.target in _LOOKUPS else meta["io_bytes"]
        meta["io_bytes"] = read + written if meta["is_kernel"] else 0

    def _result(self, node: fx.Node, tensor: torch.Tensor) -> None:
        meta = node.meta
        meta["out"], meta["bytes"] = (tuple(tensor.shape), tensor.dtype), tensor_bytes(tensor)
        meta["storage"] = storage = self._follow(tensor)
        if storage != UNTRACKED and storage not in self._nodes:
            self._nodes[storage] = node
        tensor._trace_node = node  # type: ignore[attr-defined]

    def _follow(self, tensor: torch.Tensor) -> int:
        """Returns the index of the tensor's storage; a new one is watched until it dies."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._storage_of.get(address)
        if known is not None:
            return known
        index = self._storage_of[address] = self._num_storages
        self._num_storages += 1
        num_bytes = storage.nbytes()
        self._events.append(MemoryEvent(self._num_operators, index, num_bytes))

        def died(_: weakref.ref[Any]) -> None:
            del self._storage_of[address]
            self._events.append(MemoryEvent(max(self._num_operators - 1, 0), index, -num_bytes))

        self._watches[index] = weakref.ref(storage, died)
        return index

    @contextmanager
    def _noting_functions(self) -> Iterator[None]:
        apply = torch.autograd.Function.__dict__["apply"]
        linear = nn.functional.linear
        with (
            patch.object(nn.functional, "linear", self._noting(linear)),
            patch.object(torch.autograd.Function, "apply", classmethod(self._noting_again(apply.__func__))),
        ):
            yield

    def _noting_again(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the model's own turns gradients off while it runs, in a checkpoint's second forward too."""

        def applied(function: type, *arguments: Any, **keywords: Any) -> Any:
            again = torch._C._current_graph_task_id() != -1 and (torch.is_grad_enabled() or self._num_applied > 0)
            self._num_applied += again
            try:
                return apply(function, *arguments, **keywords)
            finally:
                self._num_applied -= again

        return applied

    def _noting(self, linear: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def noted(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:  # noqa: A002 - torch's name
            places = [self._operand(tensor).meta for tensor in (weight, bias) if tensor is not None]
            is_twice = input.untyped_storage()._cdata in self._given_twice.get(self._stack[-1], ())
            if not is_twice and len(places) == 2 and all(place.get("kind") == "parameter" for place in places):
                self._linears[places[0]["name"], places[1]["name"]] = None
            return linear(input, weight, bias)

        return noted

    def _note_access(self, parameter: Any) -> None:
        node = getattr(parameter, "_trace_node", None)
        if node is not None and node.meta.get("kind") == "parameter" and torch._C._current_graph_task_id() == -1:
            self._accesses[self._stack[-1], node.meta["name"]] = None

    def _completes(self, name: str) -> Callable[[torch.Tensor], None]:
        return lambda _: self._completed.append((max(self._num_operators - 1, 0), name))

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        name = self._names.get(module)
        in_backward = torch._C._current_graph_task_id() != -1
        caller = self._call_of_derivative() if in_backward and len(self._stack) == 1 else self._stack[-1]
        if not name:
            # A module that the model made on the fly counts as part of its caller; the root is call 0.
            self._stack.append(caller)
            return
        phase = "backward" if in_backward else "forward"
        self._calls.append(Call(name, caller, phase, inputs_require_grad=any(True for _ in _with_gradient(args))))
        self._stack.append(len(self._calls) - 1)
        given = [argument for argument in args if isinstance(argument, torch.Tensor)]
        twice = [one for place, one in enumerate(given) if any(one is other for other in given[:place])]
        self._given_twice[self._stack[-1]] = {tensor.untyped_storage()._cdata for tensor in twice}

    def _leave_module(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002 - torch's signature
        error = sys.exception()
        if error is not None and error is not self._failure:
            self._failure, self._failed_in = error, self._calls[self._stack[-1]].module
        call = self._stack.pop()
        if call not in self._stack:
            nodes = [self._operand(tensor) for tensor in _with_gradient(output)]
            self._outputs[call] = self._num_operators, nodes

    def _ended(self, index: int, call: Call) -> Call:
        """Returns the call with what is known when all is recorded. The root gives the loss."""
        end, outputs = self._outputs.get(index, (0, []))
        read = [node for node in outputs if any(_reads_after(end, user) for user in node.users)]
        return call._replace(num_outputs=len(read) if index else 1)


class _Noting(dict[str, Any]):
    """A module's parameters, which tell when one is asked for by its name."""

    def __init__(self, parameters: dict[str, Any], note: Callable[[Any], None]) -> None:
        super().__init__(parameters)
        self._note = note

    def __getitem__(self, name: str) -> Any:
        parameter = super().__getitem__(name)
        self._note(parameter)
        return parameter


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


def _with_gradient(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors in a module's arguments or output that need a gradient."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _with_gradient(item)
