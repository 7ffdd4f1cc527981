"""How a result lies in memory."""

from __future__ import annotations

import torch


def with_storage(num_elements: int, result: torch.Tensor) -> torch.Tensor:
    """Returns a tensor like `result` at the beginning of a storage of `num_elements`; itself when that is no more."""
    if num_elements <= result.numel():
        return result
    storage = torch.empty(num_elements, dtype=result.dtype, device=result.device)
    return storage.as_strided(result.shape, result.stride())


def in_format(result: torch.Tensor, memory_format: torch.memory_format) -> torch.Tensor:
    """Returns a tensor like `result` in a memory format; itself when it is in it."""
    if result.is_contiguous(memory_format=memory_format):
        return result
    return torch.empty_like(result, memory_format=memory_format)


def suggested(*tensors: torch.Tensor | None) -> torch.memory_format:
    """Returns the channels-last format where one of the tensors has it, else the contiguous one.

    Source: torch 2.13, c10/core/TensorImpl.h, is_strides_like_channels_last.
    """
    for tensor in tensors:
        if tensor is None:
            continue
        kind = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
        if kind is not None and torch._prims_common.suggest_memory_format(tensor) is kind:
            return kind
    return torch.contiguous_format
