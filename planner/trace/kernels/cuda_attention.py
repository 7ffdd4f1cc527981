"""Scaled dot-product attention as CUDA runs it: the kernel that it takes, on operands shaped for it.

Source: torch 2.13, aten/src/ATen/native/transformers/attention.cpp, scaled_dot_product_attention, preprocess_mask,
pad_last_dim.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from planner.trace.kernels.attention_choice import AttentionCall, CudaTarget, attention_kernel

aten = torch.ops.aten

_FLASH_ALIGNMENT = 8
_BIAS_ALIGNMENT = 16
"""Elements that rows of the mask begin at multiples of."""


def cuda_attention(call: AttentionCall, scale: float | None, target: CudaTarget) -> torch.Tensor:
    """Returns the attention's output, (batch, heads, length, head size), with CUDA's kernel in its history.

    Raises:
        NoAttentionKernelError: The kernels that could take it are turned off.
    """
    kernel = attention_kernel(call, target)
    if kernel == "flash":
        return _flash(call, scale)
    if kernel == "math":
        result = aten._scaled_dot_product_attention_math(
            *(call.query, call.key, call.value, call.mask, call.dropout, call.is_causal, None),
            scale=scale,
            enable_gqa=call.enable_gqa,
        )
        return result[0]  # type: ignore[no-any-return]
    needs_statistics = call.requires_grad
    mask = None if call.mask is None else _as_floats(call.mask, call.query.dtype)
    if kernel == "cudnn":
        result = aten._scaled_dot_product_cudnn_attention(
            *(call.query, call.key, call.value, mask, needs_statistics, call.dropout, call.is_causal, False),
            scale=scale,
        )
        return result[0]  # type: ignore[no-any-return]
    bias = None if mask is None else _expanded(mask, call)
    result = aten._scaled_dot_product_efficient_attention(
        call.query, call.key, call.value, bias, needs_statistics, call.dropout, call.is_causal, scale=scale
    )
    return result[0]  # type: ignore[no-any-return]


def _flash(call: AttentionCall, scale: float | None) -> torch.Tensor:
    """Head sizes are padded to multiples of 8, and the output is cut again; the scale is that of the real size."""
    head_size = call.query.shape[-1]
    scale = head_size**-0.5 if scale is None else scale
    query, key, value = call.query, call.key, call.value
    padding = -head_size % _FLASH_ALIGNMENT
    if padding:
        query, key, value = (functional.pad(tensor, (0, padding)) for tensor in (query, key, value))
    result = aten._scaled_dot_product_flash_attention(
        query, key, value, call.dropout, call.is_causal, False, scale=scale
    )
    return result[0][..., :head_size] if padding else result[0]  # type: ignore[no-any-return]


def _as_floats(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask of booleans becomes floats that are added, anew in every call."""
    if mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device))


def _expanded(mask: torch.Tensor, call: AttentionCall) -> torch.Tensor:
    """Rows are padded where they do not begin at aligned addresses; then the mask stands for all heads."""
    length = mask.shape[-1]
    is_aligned = mask.stride(-1) == 1 and all(stride % _BIAS_ALIGNMENT == 0 for stride in mask.stride()[:-1])
    if not is_aligned:
        mask = functional.pad(mask, (0, -length % _BIAS_ALIGNMENT))[..., :length]
    return mask.expand(*call.query.shape[:3], call.key.shape[2])
