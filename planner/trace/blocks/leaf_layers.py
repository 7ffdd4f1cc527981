"""Finds the layers that call experts, modules of their own, for the tokens that they have.

A choice among floats decides which tokens an expert gets; what follows from it in whole numbers is followed through the
graph, down to the operators that take an expert's tokens. Where a module runs such an operator itself, and calls one of
several equal modules, ranks may call different ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import fx

from planner.trace.record.recording import ModelFacts, Recording

aten = torch.ops.aten

_CHOICES = frozenset({aten.topk.default, aten.argmax.default, aten.sort.default, aten.argsort.default, aten.max.dim})
_READS = frozenset(
    {
        aten.index.Tensor,
        aten.index_select.default,
        aten.nonzero.default,
        aten.masked_select.default,
        aten.index_add_.default,
        aten.index_add.default,
        aten._index_put_impl_.default,
        aten.index_put_.default,
    }
)
"""Operators that take the tokens of an expert, or put its results back."""
_WHOLE = frozenset({torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool})


def leaf_layers(facts: ModelFacts, recording: Recording) -> tuple[str, ...]:
    """Returns the modules that call modules of their own for the tokens that they have, in the model's order."""
    classes: dict[str, None] = {}
    for read in _tainted_reads(recording.graph):
        frame = recording.calls[read.meta["call"]].module
        if frame and any(_is_one_of_many(facts, fed) for fed in _fed(read, recording)):
            classes[facts.modules[frame].class_name] = None
    return tuple(name for name, module in facts.modules.items() if module.class_name in classes)


def leaf_layers_by_name(facts: ModelFacts) -> tuple[str, ...]:
    """Returns what holds equal modules as its "experts": itself, or the module around a list, which nobody calls."""
    found: dict[str, None] = {}
    for name, module in facts.modules.items():
        around, _, own = name.rpartition(".")
        forms = [_form(facts, child) for child in module.children]
        if "expert" in own and len(forms) > 1 and forms[0][1] and len(set(forms)) == 1:
            found[around if module.class_name.startswith("torch.nn.modules.container.") else name] = None
    return tuple(name for name in facts.modules if name and name in found)


def _tainted_reads(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yields operators of forward that read by indices which a choice among floats decided."""
    tainted: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op != "call_function" or node.meta.get("phase", "forward") != "forward":
            continue
        comes_from_choice = any(operand in tainted for operand in node.all_input_nodes)
        if comes_from_choice and node.target in _READS:
            yield node
        chooses = node.target in _CHOICES and (comes_from_choice or _is_float(node.all_input_nodes[0]))
        if chooses or (comes_from_choice and _is_whole(node)):
            tainted.add(node)


def _is_whole(node: fx.Node) -> bool:
    out = node.meta.get("out")
    return isinstance(out, tuple) and len(out) == 2 and out[1] in _WHOLE


def _is_float(node: fx.Node) -> bool:
    out = node.meta.get("out")
    return isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], torch.dtype) and out[1].is_floating_point


def _fed(read: fx.Node, recording: Recording) -> Iterator[str]:
    """Yields the modules called by the one that reads, to which it hands what it read."""
    frame = read.meta["call"]
    waiting, seen = [read], {read}
    while waiting:
        for user in waiting.pop().users:
            if user in seen or user.op != "call_function" or user.meta.get("phase", "forward") != "forward":
                continue
            seen.add(user)
            call = user.meta.get("part_of", user).meta["call"]
            if call == frame:
                waiting.append(user)
                continue
            while recording.calls[call].parent != frame and call:
                call = recording.calls[call].parent
            if call:
                yield recording.calls[call].module


def _is_one_of_many(facts: ModelFacts, name: str) -> bool:
    """Whether the module has equals beside it: names that differ in a number only, parameters of the same shapes."""
    around, _, own = name.rpartition(".")
    form, family = _form(facts, name), _without_numbers(own)
    equals = (
        other
        for other in facts.modules[around].children
        if _without_numbers(other.rpartition(".")[2]) == family and _form(facts, other) == form
    )
    return family != own and bool(form[1]) and len(list(equals)) > 1


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _form(facts: ModelFacts, name: str) -> tuple[str, tuple[tuple[int, ...], ...]]:
    beneath = [other for other in facts.modules if other == name or other.startswith(f"{name}.")]
    shapes = (facts.parameters[index].shape for other in beneath for index in facts.modules[other].parameters)
    return facts.modules[name].class_name, tuple(shapes)
