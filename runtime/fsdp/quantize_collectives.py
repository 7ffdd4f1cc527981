"""Has a block's parameters gathered as int8 and its gradients reduced as int4, where its strategy says so."""

from __future__ import annotations

import torch
from torch.distributed.fsdp import FSDPModule

from runtime.fsdp.groups import Groups
from runtime.fsdp.quantized_gather import QuantizedGather
from runtime.fsdp.quantized_reduction import QuantizedReduction
from runtime.fsdp.unit import Unit
from runtime.ranks import LaunchError


def quantize_collectives(
    unit: Unit, groups: Groups, ranks_per_node: int, device: torch.device, *, error_feedback: bool
) -> None:
    """Sets the quantized collectives of a block.

    Args:
        unit: The block, which is sharded already.
        groups: Of this rank.
        ranks_per_node: Where the first hop of a reduction ends.
        device: Where to train.
        error_feedback: Whether what a quantization of gradients leaves out is added before the next.

    Raises:
        LaunchError: The strategy asks to quantize what is not sent, or what is no floating-point number.
    """
    strategy = unit.strategy
    if strategy.quantized_weights:
        if unit.group is None:
            raise LaunchError(
                f"the plan quantizes the gathers of {unit.name or 'the root'}, which has a param degree of 1 and "
                "is not gathered; set quantized_weights to false, or give it a param degree"
            )
        for each in unit.group.fsdp_params:
            if not each.sharded_param.is_floating_point():
                raise LaunchError(
                    f"the plan quantizes the gathers of {unit.name or 'the root'}, whose "
                    f"{each._module_info.param_name} is of {each.sharded_param.dtype}: set quantized_weights to false"
                )
        module = unit.modules[0]
        assert isinstance(module, FSDPModule)
        module.set_custom_all_gather(QuantizedGather(unit.group))
    if strategy.quantized_gradients and unit.is_trained:
        if not unit.reduces_at_once:
            raise LaunchError(
                f"the plan quantizes the reductions of {unit.name or 'the root'}, which has a grad degree of 1: at the "
                "boundary gradients are reduced as they are; set quantized_gradients to false, or give it a grad degree"
            )
        unit.quantized_reduction = QuantizedReduction(unit.layout, groups, ranks_per_node, device, error_feedback)
