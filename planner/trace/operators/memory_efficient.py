"""xformers' memory-efficient attention: FlashAttention where it can, else its CUTLASS kernels, which torch has too.

Source: xformers 0.0.35, xformers/ops/fmha/__init__.py, dispatch.py, flash.py and cutlass.py.
"""

from __future__ import annotations

from typing import Any

import torch

from planner.trace.operators.entry import entries
from planner.trace.operators.flash_attention import FlashAttention, Pairs

_HALF = (torch.float16, torch.bfloat16)
_MAX_FLASH_HEAD_SIZE = 256


class LowerTriangularMask:
    """xformers.ops.LowerTriangularMask: causal attention."""


def memory_efficient_attention(  # noqa: D103 - xformers' own
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,  # noqa: ARG001 - the kernels that could be asked for save alike
) -> torch.Tensor:
    if query.dim() == 3:
        query, key, value = (one.unsqueeze(2) for one in (query, key, value))
        return memory_efficient_attention(query, key, value, attn_bias, p, scale).squeeze(2)
    is_causal = isinstance(attn_bias, LowerTriangularMask)
    if query.dim() != 4 or not (attn_bias is None or is_causal or isinstance(attn_bias, torch.Tensor)):
        raise NotImplementedError(
            "memory_efficient_attention is planned for operands (batch, length, heads, head size) with no bias, a "
            f"tensor or LowerTriangularMask; got {query.dim()} axes and {type(attn_bias).__name__}"
        )
    fits = query.dtype in _HALF and query.shape[-1] == value.shape[-1] <= _MAX_FLASH_HEAD_SIZE
    if fits and not isinstance(attn_bias, torch.Tensor):
        pairs = Pairs.fixed(query, key, (-1, -1), is_causal, wants_scores=False)
        return FlashAttention.apply(pairs, None, query, key, value)[0]  # type: ignore[no-any-return, no-untyped-call]
    bias = attn_bias if isinstance(attn_bias, torch.Tensor) else None
    needs_sums = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    made = torch.ops.aten._efficient_attention_forward(
        query, key, value, bias, None, None, None, None, p, 1 if is_causal else 0, needs_sums, scale=scale
    )
    return made[0]  # type: ignore[no-any-return]


ENTRIES = entries(("xformers.ops", "xformers.ops.fmha"), memory_efficient_attention, LowerTriangularMask)
