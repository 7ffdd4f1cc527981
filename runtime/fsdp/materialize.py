"""Gives the parameters of a block that was made without memory their memory and their initial values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from runtime.ranks import LaunchError

Fill = Callable[[str, Tensor], None]


def materialize(
    model: nn.Module, parameters: Sequence[str], device: torch.device, dtype: torch.dtype, fill: Fill | None
) -> None:
    """Brings a block's parameters to `device` and `dtype`; those on "meta" are made in fp32 and filled first.

    Args:
        model: The whole model: tied parameters are replaced wherever they are.
        parameters: First names of those of the block.
        device: Where to train.
        dtype: Of its floating-point parameters.
        fill: Writes the values of one parameter, given its name and the tensor; None: each module's `reset_parameters`.

    Raises:
        LaunchError: A module has no `reset_parameters` to fill its parameters with.
    """
    replaced: dict[nn.Parameter, nn.Parameter] = {}
    empty: list[str] = []
    for name in parameters:
        parameter = model.get_parameter(name)
        if parameter.is_meta:
            wide = torch.float32 if parameter.is_floating_point() else parameter.dtype
            values = torch.empty(parameter.shape, dtype=wide, device=device)
            replaced[parameter] = nn.Parameter(values, parameter.requires_grad)
            empty.append(name)
        else:
            parameter.data = _cast(parameter.data.to(device), dtype)
    replace(model, replaced)
    _fill(model, empty, fill)
    for parameter in replaced.values():
        parameter.data = _cast(parameter.data, dtype)


def _cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    return (values.to(dtype) if values.is_floating_point() else values).contiguous()


def replace(model: nn.Module, replaced: dict[nn.Parameter, nn.Parameter]) -> None:
    """Puts parameters in the place of others, everywhere in the model."""
    if not replaced:
        return
    for module in model.modules():
        for place, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter in replaced:
                setattr(module, place, replaced[parameter])


@torch.no_grad()
def _fill(model: nn.Module, empty: Sequence[str], fill: Fill | None) -> None:
    if fill is not None:
        for name in empty:
            fill(name, model.get_parameter(name))
        return
    for holder in dict.fromkeys(name.rpartition(".")[0] for name in empty):
        module = model.get_submodule(holder)
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if reset is None:
            raise LaunchError(
                f"{holder or 'the model'} ({type(module).__name__}) has no reset_parameters, and its parameters have "
                "no memory: give shard() a `fill` that writes each parameter's initial values"
            )
        reset()
