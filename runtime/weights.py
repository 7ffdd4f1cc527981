"""Builds the model with the same initial weights under every strategy, sharded from the start where it has to be.

DeepSpeed's stage 3 shards each module as it is made, and makes its weights in the training precision: other numbers
than those of a model made in fp32 and cast. So the first rank also makes the whole model in fp32 in its host's memory
(4 bytes per parameter, once per job), and its weights are dealt out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
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

    Args:
        build: Makes the model; called inside `deepspeed.zero.Init`.
        seed: Of the run.
        config: The DeepSpeed configuration: it has the precision and the secondary degree.
        reference: The whole model, on the first rank; None on the others.
    """
    import deepspeed

    # A model's first import of torch._dynamo fails on the tensor constructors that zero.Init puts in place.
    importlib.import_module("torch._dynamo")
    with deepspeed.zero.Init(config_dict_or_path=dict(config)):
        torch.manual_seed(seed)
        model, _ = build()
    model.train()
    whole = dict(reference.named_parameters()) if reference is not None else {}
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
            if name in whole:
                parameter.copy_(whole[name])
    _deal_buffers(model, reference)
    return model


def _deal_buffers(model: nn.Module, reference: nn.Module | None) -> None:
    """Gives `model` the buffers of the first rank's reference, in the reference's type."""
    for module_name, module in model.named_modules():
        source = reference.get_submodule(module_name) if reference is not None else None
        for name, buffer in module.named_buffers(recurse=False):
            given = [getattr(source, name).cpu() if source is not None else None]
            dist.broadcast_object_list(given, src=0)
            value = given[0]
            assert value is not None
            setattr(module, name, value.to(buffer.device))


def seed_randomness(seed: int, rank: int) -> None:
    """Sets the random state for dropout and the like: known, and another one on each rank."""
    torch.manual_seed((seed + 1) * 1_000_003 + rank)
