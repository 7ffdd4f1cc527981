"""Finds the expert layers of a model in its recording: weights that hold experts stacked, and layers of separate ones.

Which tokens an expert gets is decided by floats, of which a trace knows none: it spreads them evenly. The weights of
all experts take part in every step all the same, and are gathered like any others. But where experts are modules of
their own and their layer looks which of them have tokens, ranks may call different ones: an engine that gathers each
module as it is called would wait for ranks that never come. Such a layer has to be gathered whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from costmodels.workload import Parameter
from planner.trace.blocks.leaf_layers import leaf_layers, leaf_layers_by_name
from planner.trace.record.recording import ModelFacts, Recording

aten = torch.ops.aten

_PRODUCTS = frozenset({aten._grouped_mm.default, aten.bmm.default, aten.baddbmm.default})
"""Products of a stack of matrices, one for each expert."""
_PICKS = frozenset({aten.select.int, aten.index.Tensor, aten.index_select.default, aten.unbind.int, aten.split.Tensor})
_SAME = frozenset({aten.transpose.int, aten.t.default, aten._to_copy.default, aten.detach.default, aten.view.default})
"""Operators after which a stack is a stack; none of them moves its first axis where experts are stacked."""
_NUMBER = re.compile(r"\('[^']*expert[^']*', (\d+)\)")
"""A whole number among a module's plain attributes, under a name that speaks of experts."""


@dataclass(frozen=True, slots=True)
class Experts:
    """What was found."""

    axes: dict[int, int]
    """By index of a parameter, the axis along which it holds experts."""
    leaf_modules: tuple[str, ...]
    """Modules that call experts of their own for the tokens that they have, in the model's order."""
    notes: tuple[str, ...]
    """What to tell a person."""


def find_experts(facts: ModelFacts, recording: Recording, *, knows_calls: bool = True) -> Experts:
    """Returns the expert weights and layers; what one layer shows is taken to hold for all of its class.

    Args:
        facts: The model.
        recording: A step of it, of some of its layers at least.
        knows_calls: Whether the recording has the calls of modules; where not, layers are known by the name "experts".
    """
    axes = _axes(facts, recording)
    leaves = leaf_layers(facts, recording) if knows_calls else leaf_layers_by_name(facts)
    return Experts(axes, leaves, tuple(_notes(facts, axes, leaves)))


def with_axes(parameters: tuple[Parameter, ...], experts: Experts) -> tuple[Parameter, ...]:
    """Returns the parameters with their axes of experts."""
    return tuple(
        replace(parameter, expert_axis=experts.axes[index]) if index in experts.axes else parameter
        for index, parameter in enumerate(parameters)
    )


def _notes(facts: ModelFacts, axes: dict[int, int], leaves: tuple[str, ...]) -> Iterator[str]:
    if axes or leaves:
        yield "routing is taken to be uniform: all experts of a layer get the same share of the tokens"
    if leaves:
        yield (
            f"{', '.join(dict.fromkeys(facts.modules[name].type_name for name in leaves))}: experts are called where "
            "their tokens are, on each rank others; at stage 3 the layer is gathered whole (leaf_module in the "
            "DeepSpeed configuration); at stages 1 and 2 give each expert tokens on every rank: where one has none, "
            "DeepSpeed 0.19.8 does not train it as stages 0 and 3 do"
        )
    if any(module.class_name.startswith("deepspeed.moe.") for module in facts.modules.values()):
        yield (
            "deepspeed.moe: traced as one rank runs it; groups of ranks that share experts, and what they send each "
            "other, are not planned for"
        )


def _axes(facts: ModelFacts, recording: Recording) -> dict[int, int]:
    index_of = {parameter.name: index for index, parameter in enumerate(facts.parameters)}
    shown: dict[tuple[str, str], None] = {}
    for node in recording.graph.nodes:
        if node.meta.get("kind") != "parameter" or len(node.meta["out"][0]) < 2:
            continue
        owner, _, own = node.meta["name"].rpartition(".")
        if _is_stack(node, _numbers_of_experts(facts, owner)):
            shown[facts.modules[owner].class_name, own] = None
    return {
        index_of[f"{name}.{own}"]: 0
        for name, module in facts.modules.items()
        for class_name, own in shown
        if module.class_name == class_name and f"{name}.{own}" in index_of
    }


def _is_stack(parameter: fx.Node, numbers: frozenset[int]) -> bool:
    """By use: the operand of a grouped product, or picked from by an index where its module has so many experts."""
    waiting = [parameter]
    while waiting:
        stack = waiting.pop()
        shape = stack.meta["out"][0]
        for user in stack.users:
            if user.target in _PRODUCTS and len(shape) == 3 and _is_second(user, stack):
                return user.target is aten._grouped_mm.default or shape[0] in numbers
            if user.target in _PICKS and shape[0] in numbers and _axis(user) == 0:
                return True
            if user.target in _SAME:
                waiting.append(user)
    return False


def _is_second(user: fx.Node, stack: fx.Node) -> bool:
    return user.args[2 if user.target is aten.baddbmm.default else 1] is stack


def _axis(user: fx.Node) -> int:
    if user.target is aten.index.Tensor:
        indices: Any = user.args[1]
        return 0 if indices and indices[0] is not None else 1
    position = 2 if user.target is aten.split.Tensor else 1
    axis = user.args[position] if len(user.args) > position else user.kwargs.get("dim", 0)
    return axis if isinstance(axis, int) else 0


def _numbers_of_experts(facts: ModelFacts, name: str) -> frozenset[int]:
    """The whole numbers that a module, or the one around it, holds under a name that speaks of experts."""
    around = name.rpartition(".")[0]
    held = (_NUMBER.findall(facts.modules[module].attributes) for module in (name, around))
    return frozenset(int(value) for values in held for value in values) - {1}
