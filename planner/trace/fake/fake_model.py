"""Builds the user's model of fake tensors: all shapes and types, no bytes of weights."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from costmodels.strategy import Precision
from costmodels.workload import Parameter
from planner.model_graph import ModelSource
from planner.trace.fake.cached_results import find_caches
from planner.trace.fake.fake_world import fake_world, without_initialization
from planner.trace.fake.layer_drop import switch_off_layer_drop
from planner.trace.fake.likeness import likeness
from planner.trace.fake.refuse import refuse_untraceable
from planner.trace.fake.shadow import Shadow
from planner.trace.operators import registered_operators
from planner.trace.record.recording import ModelFacts, ModuleFacts
from runtime.load_model import build, cast_floats, load_callable

DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class FakeModel:
    """A model and its batch, with the modes that they live in."""

    module: nn.Module
    batch: dict[str, Any]
    fake_mode: FakeTensorMode
    shadow: Shadow
    names: dict[nn.Module, str]
    parameters: dict[str, nn.Parameter]
    buffers: dict[str, torch.Tensor]
    """Under the names that they have in the whole model; lists that are shortened number their layers anew."""
    facts: ModelFacts
    input_bytes: int


def fake_model(
    source: ModelSource,
    micro_batch_size: int,
    precision: Precision,
    sequence_length: int | None,
    device: Literal["cuda", "cpu"] = "cpu",
) -> FakeModel:
    """Returns the model with weights of `precision`, ready to train, and a batch whose whole numbers have values.

    For `device` "cuda", kernel packages that are not installed can be imported while it is built.

    Raises:
        runtime.load_model.UsageError: The source cannot be read.
        Exception: Whatever the user's code raises.
    """
    # Tensors that a file makes when it is loaded are real, here as in training.
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    shadow = Shadow(fake_mode)
    with registered_operators(device) as missing:
        _load(source)
    shadow.assumed.extend(missing)
    # Entered anew: what has been imported by now is told that the kernels are there.
    with fake_world(fake_mode, shadow), registered_operators(device), without_initialization():
        module, batch = build(source.spec, source.kind, source.arguments, micro_batch_size, sequence_length)
        find_caches()
        refuse_untraceable(module)
        _make_whole(module)
        shadow.assumed.extend(switch_off_layer_drop(module))
        dtype = DTYPES[precision]
        _cast(module, dtype)
        batch = tree_map(lambda item: _as_fake(item, fake_mode), cast_floats(batch, dtype))
    module.train()
    names = {child: name for name, child in module.named_modules()}
    tensors = {id(leaf): leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)}
    input_bytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())
    held = dict(module.named_parameters()), dict(module.named_buffers())
    return FakeModel(module, batch, fake_mode, shadow, names, *held, _facts(module, names), input_bytes)


def _load(source: ModelSource) -> None:
    """Imports what the model is made of."""
    if source.kind == "hf_config":
        importlib.import_module("transformers.modeling_utils")
    else:
        load_callable(source.spec, source.kind)


def _as_fake(item: Any, fake_mode: FakeTensorMode) -> Any:
    """A tensor that was made when the user's file was loaded may be real."""
    if not isinstance(item, torch.Tensor) or isinstance(item, FakeTensor):
        return item
    fake = fake_mode.from_tensor(item)
    if not item.is_floating_point():
        fake._shadow_value = item  # type: ignore[attr-defined]
    return fake


def _make_whole(module: nn.Module) -> None:
    """Gives parameters that the model's maker has partitioned already the shapes that they are trained in.

    Source: `Init`, deepspeed/runtime/zero/partition_parameters.py, 0.19.8: a partitioned parameter holds no elements,
    and its own shape is in `ds_shape`.
    """
    whole: dict[int, nn.Parameter] = {}
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            shape = getattr(parameter, "ds_shape", None)
            if parameter is not None and shape is not None and parameter.numel() == 0:
                made = whole.get(id(parameter))
                if made is None:
                    made = nn.Parameter(parameter.detach().new_empty(shape), requires_grad=parameter.requires_grad)
                    whole[id(parameter)] = made
                owner._parameters[name] = made


def _cast(module: nn.Module, dtype: torch.dtype) -> None:
    """What `module.to(dtype)` does, keeping ties; it cannot be called on fake parameters."""
    new: dict[int, Any] = {}
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None and parameter.is_floating_point() and parameter.dtype != dtype:
                if id(parameter) not in new:
                    cast = nn.Parameter(parameter.detach().to(dtype), requires_grad=parameter.requires_grad)
                    new[id(parameter)] = (parameter, cast)
                owner._parameters[name] = new[id(parameter)][1]
        for name, buffer in owner._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                owner._buffers[name] = buffer.to(dtype)


def _facts(module: nn.Module, names: dict[nn.Module, str]) -> ModelFacts:
    aliases: dict[int, list[str]] = {}
    tensors: dict[int, nn.Parameter] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(name)
        tensors[id(parameter)] = parameter
    index = {key: position for position, key in enumerate(aliases)}
    places = _num_places(module)
    modules = {
        name: ModuleFacts(
            type_name=type(child).__name__,
            class_name=f"{type(child).__module__}.{type(child).__qualname__}",
            children=tuple(dict.fromkeys(names[grandchild] for grandchild in child.children())),
            is_list=isinstance(child, nn.ModuleList | nn.Sequential),
            parameters=tuple(index[id(p)] for p in child._parameters.values() if p is not None),
            num_places=places[child],
            attributes=_plain_attributes(child),
            likeness=likeness(child),
        )
        for child, name in names.items()
    }
    parameters = tuple(
        Parameter(all_names[0], tuple(tensors[key].shape), tensors[key].requires_grad, tuple(all_names[1:]))
        for key, all_names in aliases.items()
    )
    buffer_bytes = sum(buffer.untyped_storage().nbytes() for buffer in module.buffers())
    return ModelFacts(type(module).__name__, modules, parameters, buffer_bytes)


def _plain_attributes(module: nn.Module) -> str:
    plain = {name: value for name, value in vars(module).items() if _is_plain(value) and not name.startswith("_")}
    return str(sorted(plain.items()))


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return isinstance(value, int | float | str | None)


def _num_places(module: nn.Module) -> Counter[nn.Module]:
    places: Counter[nn.Module] = Counter()
    waiting = [module]
    while waiting:
        found = waiting.pop()
        places[found] += 1
        waiting.extend(found.children())
    return places
