"""Builds the model with the same initial weights under every strategy, sharded from the start where it has to be.

DeepSpeed's own way to shard a model as it is made, the context of `zero.Init`, cuts each module's parameters as soon as
its constructor returns. What then still touches them fails or goes wrong: weights that a parent initializes (most
Hugging Face models), layers that are copied (`nn.TransformerEncoder`). So a model that is to be sharded is made with
parameters that have a shape and no memory, the first rank makes the whole model in fp32 in its host's memory (4 bytes
per parameter, once per job), and its weights are dealt out, one parameter at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

Build = Callable[[], tuple[nn.Module, dict[str, Any]]]


def whole_model(build: Build, seed: int) -> nn.Module:
    """Returns the model of this seed, whole and in fp32."""
    torch.manual_seed(seed)
    model, _ = build()
    return model.train()


def sharded_model(build: Build, seed: int, config: Mapping[str, Any], reference: nn.Module | None) -> nn.Module:
    """Returns the model sharded by DeepSpeed's stage 3, with the weights and buffers of `reference`.

    Parameters are numbered by DeepSpeed in the order in which they are sharded: children before their parents.

    Args:
        build: Makes the model.
        seed: Of the run.
        config: The DeepSpeed configuration: it has the precision and the secondary degree.
        reference: The whole model, on the first rank; None on the others.
    """
    import deepspeed

    # Given a module, it shards that at once, and puts stage 3's linear operator in place; this one has no parameters.
    sharder = deepspeed.zero.Init(module=nn.Module(), config_dict_or_path=dict(config))
    with sharder.local_device:
        model = model_without_memory(build, seed)
    whole = dict(reference.named_parameters()) if reference is not None else {}
    names = {parameter: name for name, parameter in model.named_parameters()}
    sharded: dict[nn.Parameter, nn.Parameter] = {}
    for module in _children_first(model):
        for place, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if parameter not in sharded:
                sharded[parameter] = _with_memory(parameter, whole.get(names[parameter]), sharder)
                sharder._convert_to_zero_parameters([sharded[parameter]])
            setattr(module, place, sharded[parameter])
    deal_buffers(model, reference, sharder.local_device)
    return model


def model_without_memory(build: Build, seed: int) -> nn.Module:
    """Returns the model with parameters that have a shape and no memory."""
    with parameters_without_memory():
        torch.manual_seed(seed)
        model, _ = build()
    return model.train()


def dealer(reference: nn.Module | None) -> Callable[[str, torch.Tensor], None]:
    """Returns what writes a parameter's initial values, given its name and the whole tensor, on all ranks at once.

    Args:
        reference: The whole model, on the first rank; None on the others.
    """
    whole = dict(reference.named_parameters()) if reference is not None else {}

    def deal(name: str, values: torch.Tensor) -> None:
        if reference is not None:
            values.copy_(whole[name])
        dist.broadcast(values, src=0)

    return deal


def _children_first(module: nn.Module) -> list[nn.Module]:
    """Returns each module once, after those that it is made of."""
    found: dict[nn.Module, None] = {}

    def visit(visited: nn.Module) -> None:
        for child in visited.children():
            visit(child)
        found.setdefault(visited)

    visit(module)
    return list(found)


def _with_memory(parameter: nn.Parameter, weights: torch.Tensor | None, sharder: Any) -> nn.Parameter:
    """Returns the parameter in the training precision, with the weights where they are known."""
    dtype = sharder.dtype if parameter.is_floating_point() else parameter.dtype
    if weights is None:
        value = torch.empty(parameter.shape, dtype=dtype, device=sharder.local_device)
    else:
        value = weights.detach().to(device=sharder.local_device, dtype=dtype, copy=True).contiguous()
    return nn.Parameter(value, parameter.requires_grad)


def deal_buffers(model: nn.Module, reference: nn.Module | None, device: torch.device) -> None:
    """Gives `model` the buffers of the first rank's reference, in the reference's type."""
    for module_name, module in model.named_modules():
        source = reference.get_submodule(module_name) if reference is not None else None
        for name, _ in module.named_buffers(recurse=False):
            given = [getattr(source, name).cpu() if source is not None else None]
            dist.broadcast_object_list(given, src=0)
            value = given[0]
            assert value is not None
            setattr(module, name, value.to(device))


@contextmanager
def parameters_without_memory() -> Iterator[None]:
    """Moves every parameter to the device "meta" as a module takes it: it keeps its shape, and is written in vain.

    Nothing of `torch.nn.init` is replaced: what a model imports meanwhile may keep it for good.
    """
    register = nn.Module.register_parameter

    def without_memory(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and parameter.device.type != "meta":
            parameter = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = without_memory  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def seed_randomness(seed: int, rank: int) -> None:
    """Sets the random state for dropout and the like: known, and another one on each rank."""
    torch.manual_seed((seed + 1) * 1_000_003 + rank)
