"""What the run of one training step leaves behind: a torch.fx graph, and the births and deaths of its memory.

The graph has placeholders for parameters, buffers and inputs, and one `call_function` per operator, forward and
backward, in order of execution. Each node's `meta` has

    kind      placeholders: "parameter", "buffer", "input" or "constant"; `name`: its qualified name
    value     constants: the tensor itself, where the trace knows it
    index     operators: position among all operators; results of one operator that has several share it
    call      operators: index into `Recording.calls` of the module call that it belongs to
    fqn       operators: the name of that module, for people
    phase     operators: "forward", "recomputation" (a checkpoint runs it again in backward) or "backward"
    flop, io_bytes, is_kernel   operators: its cost; a view is no kernel and costs nothing
    kind_of_work, dtype   operators with FLOPs: what they compute, and in which type of number
    param_cast   copies of a parameter in another type: its name; one that autocast made lives until its region ends
    storage   the storage that holds the tensor: an index, or UNTRACKED for parameters, buffers and inputs
    out       shape and dtype, or a list of them
    requires_grad  present and true when an operator read it as a tensor that needs a gradient
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import fx

from costmodels.workload import Parameter

UNTRACKED = -1

NodePhase = Literal["forward", "recomputation", "backward"]


class Call(NamedTuple):
    """One forward call of a module."""

    module: str
    """Its name in the model, "" for the root."""
    parent: int
    """Index of the call that it happened in; the first call, the root's, is its own parent."""
    phase: str
    """"forward", or "backward" when a checkpoint of the model's own called it again."""
    inputs_require_grad: bool = False
    """A tensor among the positional arguments does, lists and dictionaries included."""
    num_outputs: int = 0
    """Output tensors that need a gradient and that an operator of forward reads once the call has ended."""


class MemoryEvent(NamedTuple):
    """A storage came to life (positive) or died (negative) during or after an operator."""

    operator: int
    """The operator that was the last to run."""
    storage: int
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class ModuleFacts:
    """What the rest of the trace needs to know of one module."""

    type_name: str
    class_name: str
    """With its Python module."""
    children: tuple[str, ...]
    """Names of its direct children, as they are in the model."""
    is_list: bool
    """ModuleList or Sequential."""
    parameters: tuple[int, ...]
    """Indices of the parameters that it holds directly, in its order of registration."""
    num_places: int
    """How often a walk through the tree comes by it."""
    attributes: str = ""
    """Its plain attributes, as a list of pairs."""
    likeness: str = ""
    """All of it that a forward may ask to decide what it runs, but for the number of a layer."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One training step: forward, loss and backward."""

    graph: fx.Graph
    calls: tuple[Call, ...]
    """In order of their beginning."""
    events: tuple[MemoryEvent, ...]
    """In order of time; storages of parameters, buffers and inputs have none."""
    gradients: frozenset[int]
    """Storages that are a parameter's gradient at the end."""
    completed: tuple[tuple[int, str], ...]
    """(the operator that was the last to run, parameter) when autograd completed each gradient, in order of time."""
    accesses: tuple[tuple[int, str], ...]
    """(call, parameter) for each parameter that a module of the model was asked for by name, in order of time."""
    linears: tuple[tuple[str, str], ...]
    """The parameters that were weight and bias of `torch.nn.functional.linear`, once each, in order of time."""
    linear_weights: frozenset[str]
    """The parameters that were its weight as they are, with or without a bias."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model as it was built, before anything ran."""

    type_name: str
    modules: dict[str, ModuleFacts]
    """By name, in the order of `named_modules()`."""
    parameters: tuple[Parameter, ...]
    buffer_bytes: int
