"""Attention and dropout as CUDA runs them, on fake CPU tensors: other kernels keep other tensors for backward.

CPU's attention falls back to one that saves the whole score matrix where CUDA's does not, and CPU's dropout saves a
mask of floats where CUDA's saves bytes. Fake tensors of device "cuda" cannot run backward without a CUDA build, so the
CUDA operators are called on CPU ones: their shape rules and their autograd formulas are the same.

Functions are replaced by name, not by a `TorchFunctionMode`: such a mode is off while backward re-runs a checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch.nn import functional

aten = torch.ops.aten

MAX_FLASH_HEAD_SIZE = 256
"""Source: torch 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_head_dim_size_flash."""


@contextmanager
def cuda_kernels() -> Iterator[None]:
    """Inside, scaled dot-product attention and dropout save what CUDA's kernels save."""
    attention, dropout = functional.scaled_dot_product_attention, functional.dropout
    replacements: list[tuple[Any, Callable[..., Any]]] = [(attention, _attention), (dropout, _dropout_like(dropout))]
    # A model may have bound the functions to names of its own by `from torch.nn.functional import ...`.
    bound = [
        (module, name, function, replacement)
        for module in list(sys.modules.values())
        for function, replacement in replacements
        for name in (function.__name__,)
        if getattr(module, "__dict__", {}).get(name) is function
    ]
    for module, name, _, replacement in bound:
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for module, name, function, _ in bound:
            setattr(module, name, function)


def attention_kernel(
    query: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, grouped: bool
) -> Literal["flash", "efficient", "math"]:
    """Returns which kernel CUDA chooses for these operands.

    Source: torch 2.13, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, select_sdp_backend: flash for half
    precision without a mask, memory-efficient for masks and fp32 but not for grouped queries, else plain operators.
    """
    if query.dim() != 4:
        return "math"
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    if mask is None and is_half and query.shape[-1] == value.shape[-1] <= MAX_FLASH_HEAD_SIZE:
        return "flash"
    return "math" if grouped else "efficient"


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    kernel = attention_kernel(query, value, attn_mask, enable_gqa and query.shape[1] != key.shape[1])
    if kernel == "flash":
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if kernel == "efficient":
        needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        bias = None if attn_mask is None else _bias(attn_mask, query, key)
        result = aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, needs_grad, dropout_p, is_causal, scale=scale
        )
        return result[0]  # type: ignore[no-any-return]
    result = aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )
    return result[0]  # type: ignore[no-any-return]


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float, is_causal: bool, scale: float | None
) -> torch.Tensor:
    head_size = query.shape[-1]
    scale = head_size**-0.5 if scale is None else scale
    padding = -head_size % 8
    if padding:
        query, key, value = (functional.pad(t, (0, padding)) for t in (query, key, value))
    result = aten._scaled_dot_product_flash_attention(query, key, value, dropout, is_causal, False, scale=scale)
    return result[0][..., :head_size] if padding else result[0]  # type: ignore[no-any-return]


def _bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The memory-efficient kernel adds its mask: a float of aligned rows, made anew in each call."""
    bias = mask
    if bias.dtype == torch.bool:
        bias = query.new_zeros(bias.shape).masked_fill_(bias.logical_not(), float("-inf"))
    while bias.dim() < 4:
        bias = bias.unsqueeze(0)
    length = bias.shape[-1]
    if length % 16:
        bias = functional.pad(bias, (0, -length % 16))[..., :length]
    return bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _dropout_like(dropout: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def dropped(
        input: torch.Tensor,  # noqa: A002 - callers may pass it by torch's name
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> torch.Tensor:
        if training and 0 < p < 1 and not inplace:
            return aten.native_dropout(input, p, True)[0]  # type: ignore[no-any-return]
        return dropout(input, p, training, inplace)

    return dropped
