"""Writes a `Recording` from a step that was not watched as it ran: nodes, calls and memory are given one by one."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from costmodels.workload import Parameter
from planner.trace.blocks.signature import ancestors
from planner.trace.flop_formulas import Kind
from planner.trace.record.recording import UNTRACKED, Call, MemoryEvent, ModelFacts, NodePhase, Recording


class RecordingWriter:
    """Collects what a `Recording` has; operators are numbered as they come."""

    def __init__(
        self, facts: ModelFacts, dtypes: Sequence[torch.dtype], product_dtype: torch.dtype | None = None
    ) -> None:
        """Takes the model's facts, the type of each of its parameters, and that of products (None: their operands')."""
        self._product_dtype = product_dtype
        self.graph = fx.Graph()
        self.facts = facts
        self._calls = [Call("", 0, "forward")]
        self._open = [0]
        self._last_call = {"": 0}
        self._events: list[MemoryEvent] = []
        self._num_operators = 0
        self._num_storages = 0
        self._gradients: list[int] = []
        self._completed: list[tuple[int, str]] = []
        self._linears: dict[tuple[str, str], None] = {}
        self.parameters = [
            self._parameter(parameter, dtype) for parameter, dtype in zip(facts.parameters, dtypes, strict=True)
        ]

    def enter(self, module: str) -> int:
        """Returns the call of a module that runs now, with those around it; lists of modules are never called."""
        path = [name for name in reversed(list(ancestors(module))) if not name or self._is_called(name)]
        depth = 0
        while depth < min(len(path), len(self._open)) and self._calls[self._open[depth]].module == path[depth]:
            depth += 1
        del self._open[depth:]
        for name in path[depth:]:
            self._calls.append(Call(name, self._open[-1], "forward", inputs_require_grad=True, num_outputs=1))
            self._open.append(len(self._calls) - 1)
            self._last_call[name] = self._open[-1]
        return self._open[-1]

    def call_of(self, module: str) -> int:
        """Returns the last call of a module, or of the innermost around it that was called."""
        return next(self._last_call[name] for name in ancestors(module) if name in self._last_call)

    def operator(
        self,
        target: Any,
        operands: tuple[Any, ...],
        *,
        call: int,
        phase: NodePhase,
        out: Any,
        keywords: dict[str, Any] | None = None,
        work: tuple[Kind, int] = ("other", 0),
        is_kernel: bool = True,
        reads_rows: bool = False,
    ) -> fx.Node:
        """Returns the node of an operator that runs now; its result has no storage until `born`.

        Args:
            target: What runs.
            operands: Its arguments; those that are tensors as nodes.
            call: Of `enter`.
            phase: Of the step.
            out: Shape and type of its result, or a list of them.
            keywords: Its keyword arguments.
            work: Its kind and FLOPs.
            is_kernel: Whether it runs any; a view does not.
            reads_rows: Whether it reads no more of its operands than it writes.
        """
        node = self.graph.create_node("call_function", target, operands, keywords or {})
        written = sum(_num_bytes(each) for each in (out if isinstance(out, list) else [out]) if isinstance(each, tuple))
        read = written if reads_rows else sum(operand.meta.get("bytes", 0) for operand in node.all_input_nodes)
        node.meta.update(
            index=self._num_operators,
            phase=phase,
            call=call,
            fqn=self._calls[call].module,
            flop=work[1],
            is_kernel=is_kernel,
            io_bytes=read + written if is_kernel else 0,
            storage=UNTRACKED,
            out=out,
            bytes=written,
        )
        if work[1]:
            dtype = self._product_dtype or _operand_dtype(node)
            node.meta.update(kind_of_work=work[0], dtype=str(dtype).removeprefix("torch."))
        self._num_operators += 1
        return node

    def part(self, node: fx.Node, position: int, out: Any) -> fx.Node:
        """Returns the node of one result of an operator that has several; one that is no tensor has no bytes."""
        part = self.graph.create_node("call_function", operator.getitem, (node, position))
        num_bytes = _num_bytes(out) if isinstance(out, tuple) else 0
        part.meta.update(index=node.meta["index"], part_of=node, storage=UNTRACKED, out=out, bytes=num_bytes)
        return part

    def constant(self, kind: str, name: str, out: tuple[tuple[int, ...], torch.dtype]) -> fx.Node:
        """Returns the node of a tensor that was there before the step and is no parameter."""
        node = self.graph.create_node("get_attr", f"{kind}_{len(self.graph.nodes)}")
        node.meta.update(kind=kind, name=name, storage=UNTRACKED, out=out, bytes=_num_bytes(out))
        return node

    def born(self, node: fx.Node, num_bytes: int) -> int:
        """Returns the new storage that the operator made for its result."""
        storage = self._num_storages
        self._num_storages += 1
        node.meta["storage"] = storage
        self._events.append(MemoryEvent(node.meta["index"], storage, num_bytes))
        return storage

    def died(self, storage: int, num_bytes: int, after: int | None = None) -> None:
        """Frees a storage after the operator of that index; None: after the last one so far."""
        index = self._num_operators - 1 if after is None else after
        self._events.append(MemoryEvent(index, storage, -num_bytes))

    def completes(self, parameter: str, storage: int, at: int | None = None) -> None:
        """Notes that a storage is a parameter's whole gradient since that operator; None: since the last one so far."""
        self._gradients.append(storage)
        self._completed.append((self._num_operators - 1 if at is None else at, parameter))

    def linear(self, weight: str, bias: str) -> None:
        """Notes that two parameters are weight and bias of one linear map."""
        self._linears[weight, bias] = None

    def finish(self, loss: fx.Node, warnings: Sequence[str] = ()) -> Recording:
        """Closes the graph with the loss as its output and returns the recording."""
        self.graph.output(loss)
        self.graph.lint()
        # Storages die in the order of the operators, whenever their death was written down; births come first.
        events = sorted(self._events, key=lambda event: (event.operator, event.delta_bytes < 0, event.storage))
        return Recording(
            graph=self.graph,
            calls=tuple(self._calls),
            events=tuple(events),
            gradients=frozenset(self._gradients) - {UNTRACKED},
            completed=tuple(self._completed),
            accesses=(),
            linears=tuple(self._linears),
            # Which transposed weights are those of linear operators is not known here: mostly all are.
            linear_weights=frozenset(parameter.name for parameter in self.facts.parameters),
            warnings=tuple(warnings),
        )

    def _is_called(self, name: str) -> bool:
        return self.facts.modules[name].type_name not in ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict")

    def _parameter(self, parameter: Parameter, dtype: torch.dtype) -> fx.Node:
        node = self.graph.placeholder(f"parameter_{parameter.name}".replace(".", "_"))
        num_bytes = parameter.num_elements * dtype.itemsize
        node.meta.update(kind="parameter", name=parameter.name, storage=UNTRACKED, bytes=num_bytes)
        node.meta["out"] = (parameter.shape, dtype)
        return node


def _num_bytes(out: tuple[tuple[int, ...], torch.dtype]) -> int:
    shape, dtype = out
    return torch.Size(shape).numel() * dtype.itemsize


def _operand_dtype(node: fx.Node) -> torch.dtype | str:
    """Returns the type of number of the first tensor among the operands; "" where there is none."""
    found = [operand.meta["out"][1] for operand in node.all_input_nodes if isinstance(operand.meta["out"], tuple)]
    return found[0] if found else ""
