"""Shards a model as a plan says: every block by its own degrees of parameters, gradients and optimizer states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from runtime.fsdp.borrow import hold
from runtime.fsdp.check_plan import check_plan
from runtime.fsdp.find_modules import BlockModules, find_modules
from runtime.fsdp.gather import gather, mesh, place_of
from runtime.fsdp.groups import Groups
from runtime.fsdp.hierarchical_gather import HierarchicalGather
from runtime.fsdp.materialize import Fill, materialize
from runtime.fsdp.quantize_collectives import quantize_collectives
from runtime.fsdp.sharded import Sharded
from runtime.fsdp.strategies import ShardingPlan, read_plan
from runtime.fsdp.unit import Unit
from runtime.ranks import LaunchError
from runtime.recompute import recompute

__all__ = ["Sharded", "shard"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def shard(
    model: nn.Module,
    plan: ShardingPlan | Mapping[str, Any] | str | Path,
    *,
    device: torch.device | None = None,
    fill: Fill | None = None,
) -> Sharded:
    """Shards `model` in place, block by block: no rank ever makes the memory of more than one whole block.

    Every rank of the process group calls it with the same model: made on the device "meta", or with equal weights.

    Args:
        model: In fp32 or in the plan's precision, which it is brought to.
        plan: A plan's folder, its `plan.json`, or what is in it.
        device: Where to train; None: the current CUDA device, or the CPU without one.
        fill: Writes the initial values of a parameter without memory, given its name and the whole fp32 tensor; None:
            each module's own `reset_parameters`, from the random state that all ranks share.

    Raises:
        LaunchError: The plan is for another number of ranks or another model, or a parameter cannot be sharded.
    """
    read = read_plan(plan)
    check_plan(read)
    if dist.get_world_size() != read.world_size:
        raise LaunchError(
            f"this plan is for {read.world_size} ranks, but {dist.get_world_size()} run; plan again for these"
        )
    if device is None:
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    groups = Groups(read.level_sizes)
    level_by_level = HierarchicalGather(groups)
    recompute(model, read.recompute_modules)
    blocks = find_modules(model, read.strategies)
    units: dict[str, Unit] = {}
    for block in sorted(blocks, key=lambda each: -each.depth):
        materialize(model, block.parameters, device, DTYPES[read.precision], fill)
        units[block.name] = unit = _unit(model, block, groups, device, DTYPES[read.precision])
        if unit.strategy.hierarchical and unit.group is not None:
            cast(FSDPModule, unit.modules[0]).set_custom_all_gather(level_by_level)
        quantize_collectives(unit, groups, read.ranks_per_node, device, error_feedback=read.error_feedback)
    _settle_buffers(model, device, DTYPES[read.precision])
    _add_root(model, units.values(), groups, device)
    return Sharded(model, read, [units[block.name] for block in blocks], groups)


def _unit(model: nn.Module, block: BlockModules, groups: Groups, device: torch.device, dtype: torch.dtype) -> Unit:
    own = {name: model.get_parameter(name) for name in block.parameters}
    trained = [(name, parameter) for name, parameter in own.items() if parameter.requires_grad]
    modules = [model.get_submodule(name) for name in block.modules]
    unit = Unit(block.name, block.strategy, modules, trained, groups.rank)
    sources: list[Any] = [parameter for _, parameter in trained]
    names = [name for name, _ in trained]
    # Once it is sharded, nothing may hold the whole block beside the memory of its gradients.
    del own, trained
    if block.strategy.param_degree > 1:
        sources.clear()
        unit.group = gather(model, modules, block.parameters, block.strategy, groups, device)
        if block.is_borrowed:
            hold(unit)
        at = {(each._module_info.module, each._module_info.param_name): each for each in unit.group.fsdp_params}
        sources = [at[place_of(model, name)] for name in names]
    unit.adopt(sources, device, dtype)
    return unit


def _settle_buffers(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    for module_name, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta:
                raise LaunchError(
                    f"the buffer {name} of {module_name or 'the model'} has no memory; make the model with "
                    "parameters_without_memory(), which leaves buffers as they are"
                )
            setattr(module, name, buffer.to(device, dtype if buffer.is_floating_point() else None))


def _add_root(model: nn.Module, units: Iterable[Unit], groups: Groups, device: torch.device) -> None:
    """Makes the model FSDP2's root, which its blocks need, where no block is at the root itself."""
    sharded = [unit for unit in units if unit.group is not None]
    if sharded and not isinstance(model, FSDPModule):
        degree = sharded[0].strategy.param_degree
        fully_shard(model, mesh=mesh(groups, degree, device), ignored_params=set(model.parameters()))
    if sharded:
        # Whichever module runs first: the model is the root.
        cast(FSDPModule, model)._get_fsdp_state()._lazy_init()
