"""Refuses models that could be traced to nothing true, before anything runs: each with what to return instead."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from planner.errors import TraceError


def refuse_untraceable(module: nn.Module) -> None:
    """Returns if the model consists of modules and parameters that an engine can shard.

    Raises:
        TraceError: It is wrapped for distributed training already, is TorchScript, or a parameter has no shape, no
            values, or numbers that no engine shards; the text names it.
    """
    for name, child in module.named_modules():
        where = f"module {name!r}" if name else "the model"
        kind = type(child)
        if isinstance(child, torch.jit.ScriptModule):
            raise TraceError(
                f"{where} is TorchScript, which hides what it runs: return the nn.Module that it was made from"
            )
        if kind.__name__ in _WRAPPERS and kind.__module__.startswith(_WRAPPERS_FROM):
            raise TraceError(
                f"{where} is wrapped in {kind.__name__}: return the model itself, and the launcher shards it as planned"
            )
        if isinstance(child, nn.Embedding | nn.EmbeddingBag) and child.sparse:
            raise TraceError(
                f"{where} has sparse gradients, and engines reduce dense ones: make it with sparse=False, whose "
                f"gradient is {child.weight.numel():,} numbers"
            )
    for name, parameter in module.named_parameters():
        problem = next(_problems(parameter), None)
        if problem is not None:
            raise TraceError(f"parameter {name!r} {problem}")


_WRAPPERS = frozenset({"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine"})
_WRAPPERS_FROM = ("torch.nn.parallel", "torch.distributed", "deepspeed")


def _problems(parameter: nn.Parameter) -> Iterator[str]:
    if isinstance(parameter, UninitializedParameter):
        yield (
            "has no shape yet: give the lazy module its sizes (LazyLinear(out) becomes Linear(in, out)), or run the "
            "model once before it is returned"
        )
    elif type(parameter.data).__name__ == "DTensor" or type(parameter).__name__ == "DTensor":
        yield "is sharded already (DTensor): return the model whole, and the launcher shards it as planned"
    elif parameter.is_complex():
        yield (
            f"is {str(parameter.dtype).removeprefix('torch.')}, and engines shard real numbers only: keep it as two "
            "real ones, with torch.view_as_complex where it is used"
        )
    elif parameter.is_nested or parameter.layout is not torch.strided:
        yield "is not one dense tensor, and engines shard dense ones only"
    elif parameter.device.type == "meta":
        yield (
            "is on the meta device, so that the launcher would have nothing to train: build the model without "
            "torch.device('meta'), weights take no memory while it is traced"
        )
