"""Has FSDP2 gather the parameters of a block: over p in forward, over s in backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_common import HSDPMeshInfo

from runtime.fsdp.groups import Groups
from runtime.fsdp.materialize import replace
from runtime.fsdp.strategies import BlockStrategy

Place = tuple[nn.Module, str]
"""The module that a parameter is in, and its name there: what FSDP2 knows it by."""


def gather(
    model: nn.Module,
    modules: Sequence[nn.Module],
    parameters: Sequence[str],
    strategy: BlockStrategy,
    groups: Groups,
    device: torch.device,
) -> Any:
    """Shards a block's parameters over p > 1, and returns FSDP2's group of them.

    Args:
        model: The whole model.
        modules: The block's module, and those beyond it that use its parameters: gathered from the first one's forward
            to the last one's.
        parameters: First names of those of the block.
        strategy: Its degrees.
        groups: Of this rank.
        device: Where its parameters are.
    """
    scalars = _as_rows(model, parameters)
    own = {model.get_parameter(name) for name in parameters}
    places = _places(model, own)
    fully_shard(
        modules[0] if len(modules) == 1 else list(modules),
        mesh=mesh(groups, strategy.param_degree, device),
        reshard_after_forward=strategy.secondary_degree > 1,
        ignored_params={parameter for parameter in model.parameters() if parameter not in own},
    )
    first = modules[0]
    assert isinstance(first, FSDPModule)
    # Gradients stay where autograd puts them: the runtime reduces them, to degrees that FSDP2 does not know.
    first.set_requires_gradient_sync(False, recurse=False)
    first._set_unshard_async_op(True)
    group = first._get_fsdp_state()._fsdp_param_group
    assert group is not None
    # In backward FSDP2 gathers one block ahead where it is told none: what is gathered ahead is the plan's to say.
    group._backward_prefetch = lambda: None  # type: ignore[method-assign]
    if 1 < strategy.secondary_degree < strategy.param_degree:
        _shard_after_forward(group, strategy, groups, device)
    for each in group.fsdp_params:
        at = each._module_info.module, each._module_info.param_name
        if at in scalars:
            # What is gathered takes the parameter's own shape again.
            each._orig_size, each._contiguous_orig_stride = torch.Size(), ()
        _put_everywhere(each, places[at])
    return group


def place_of(model: nn.Module, name: str) -> Place:
    """Returns the place of a parameter by its name in the model."""
    holder, _, place = name.rpartition(".")
    return model.get_submodule(holder), place


def mesh(groups: Groups, degree: int, device: torch.device) -> DeviceMesh:
    """Returns the mesh of the shard group of a degree."""
    return DeviceMesh.from_group(groups.between(1, degree, "gather"), device.type, mesh_dim_names=("shard",))


def _places(model: nn.Module, own: set[nn.Parameter]) -> dict[Place, list[Place]]:
    """Returns all places of each parameter, by each of them."""
    found: dict[nn.Parameter, list[Place]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if parameter in own:
                found.setdefault(parameter, []).append((module, name))
    return {place: places for places in found.values() for place in places}


def _put_everywhere(parameter: Any, places: Sequence[Place]) -> None:
    """Has FSDP2 put a parameter, sharded or gathered, also where it is used outside of its block's modules."""
    info = parameter._module_info
    known = [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names, strict=True)]
    for module, name in places:
        if (module, name) not in known:
            info.shared_modules.append(module)
            info.shared_param_names.append(name)
            setattr(module, name, parameter.sharded_param)


def _as_rows(model: nn.Module, parameters: Sequence[str]) -> list[Place]:
    """Gives scalars one row, as FSDP2 shards by rows; returns where they are."""
    scalars = [name for name in parameters if model.get_parameter(name).dim() == 0]
    given = {name: model.get_parameter(name) for name in scalars}
    replace(model, {scalar: nn.Parameter(scalar.data.view(1), scalar.requires_grad) for scalar in given.values()})
    return [place_of(model, name) for name in scalars]


def _shard_after_forward(group: Any, strategy: BlockStrategy, groups: Groups, device: torch.device) -> None:
    """Has parameters sharded to s from forward to backward.

    FSDP2 does so for an integer `reshard_after_forward`, but its mesh makes groups in which every rank of the world
    has to take part, where a block is sharded over a part of the world.

    Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_init.py, `_get_post_forward_mesh_info`.
    """
    inner, outer = strategy.secondary_degree, strategy.param_degree
    first = groups.rank // outer * outer
    after = HSDPMeshInfo(
        DeviceMesh.from_group(
            [groups.between(inner, outer, "gather"), groups.between(1, inner, "gather")],
            device.type,
            torch.arange(first, first + outer, dtype=torch.int).view(-1, inner),
            mesh_dim_names=("replicate", "shard"),
        ),
        shard_mesh_dim=1,
        replicate_mesh_dim=0,
    )
    group.post_forward_mesh_info = after
    for each in group.fsdp_params:
        each.post_forward_mesh_info = after
        each._init_sharded_post_forward_param_metadata(torch.empty(each._orig_size, device="meta"))


def after_backward(group: Any, ended: Callable[[], None]) -> None:
    """Calls `ended` after FSDP2's own end of a block's backward, when the parameters are sharded again.

    Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `post_backward`: it is called by the
    autograd function at the block's inputs and by the end of backward; with `reduce_grads` false it leaves gradients
    where autograd put them.
    """
    original = group.post_backward

    def post_backward(*unused: Any) -> None:
        original(*unused)
        ended()

    group.post_backward = post_backward
