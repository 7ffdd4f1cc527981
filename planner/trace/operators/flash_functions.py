"""The functions of flash_attn by which models call its attention, with its own names, order and defaults.

Source: flash_attn 2.8.3, flash_attn/flash_attn_interface.py.
"""

from __future__ import annotations

from typing import Any

import torch

from planner.trace.operators.entry import entries
from planner.trace.operators.flash_attention import FlashAttention, Pairs

_Window = tuple[int, int]
_ANY: _Window = (-1, -1)
_HALF = (torch.float16, torch.bfloat16)


def flash_attn_func(  # noqa: D103 - flash_attn's own
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,  # noqa: ARG001 - changes no cost
    causal: bool = False,
    window_size: _Window = _ANY,
    softcap: float = 0.0,  # noqa: ARG001
    alibi_slopes: torch.Tensor | None = None,  # noqa: ARG001
    deterministic: bool = False,  # noqa: ARG001
    return_attn_probs: bool = False,
) -> Any:
    pairs = Pairs.fixed(q, k, window_size, causal, return_attn_probs and dropout_p > 0)
    return _attention(pairs, None, (q, k, v), return_attn_probs)


def flash_attn_qkvpacked_func(  # noqa: D103
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,  # noqa: ARG001
    causal: bool = False,
    window_size: _Window = _ANY,
    softcap: float = 0.0,  # noqa: ARG001
    alibi_slopes: torch.Tensor | None = None,  # noqa: ARG001
    deterministic: bool = False,  # noqa: ARG001
    return_attn_probs: bool = False,
) -> Any:
    pairs = Pairs.fixed(qkv[:, :, 0], qkv[:, :, 1], window_size, causal, return_attn_probs and dropout_p > 0)
    return _attention(pairs, qkv, (), return_attn_probs)


def flash_attn_kvpacked_func(  # noqa: D103
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,  # noqa: ARG001
    causal: bool = False,
    window_size: _Window = _ANY,
    softcap: float = 0.0,  # noqa: ARG001
    alibi_slopes: torch.Tensor | None = None,  # noqa: ARG001
    deterministic: bool = False,  # noqa: ARG001
    return_attn_probs: bool = False,
) -> Any:
    pairs = Pairs.fixed(q, kv[:, :, 0], window_size, causal, return_attn_probs and dropout_p > 0)
    return _attention(pairs, kv, (q,), return_attn_probs)


def flash_attn_varlen_func(  # noqa: D103
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,  # noqa: ARG001
    softmax_scale: float | None = None,  # noqa: ARG001
    causal: bool = False,
    window_size: _Window = _ANY,
    softcap: float = 0.0,  # noqa: ARG001
    alibi_slopes: torch.Tensor | None = None,  # noqa: ARG001
    deterministic: bool = False,  # noqa: ARG001
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,  # noqa: ARG001 - for inference
) -> Any:
    longest = int(max_seqlen_q), int(max_seqlen_k)
    pairs = Pairs.variable((cu_seqlens_q, cu_seqlens_k), longest, window_size, causal)
    return _attention(pairs, None, (q, k, v), return_attn_probs)


def flash_attn_varlen_qkvpacked_func(  # noqa: D103
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,  # noqa: ARG001
    softmax_scale: float | None = None,  # noqa: ARG001
    causal: bool = False,
    window_size: _Window = _ANY,
    softcap: float = 0.0,  # noqa: ARG001
    alibi_slopes: torch.Tensor | None = None,  # noqa: ARG001
    deterministic: bool = False,  # noqa: ARG001
    return_attn_probs: bool = False,
) -> Any:
    pairs = Pairs.variable((cu_seqlens, cu_seqlens), (int(max_seqlen),) * 2, window_size, causal)
    return _attention(pairs, qkv, (), return_attn_probs)


def flash_attn_varlen_kvpacked_func(  # noqa: D103
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,  # noqa: ARG001
    softmax_scale: float | None = None,  # noqa: ARG001
    causal: bool = False,
    window_size: _Window = _ANY,
    softcap: float = 0.0,  # noqa: ARG001
    alibi_slopes: torch.Tensor | None = None,  # noqa: ARG001
    deterministic: bool = False,  # noqa: ARG001
    return_attn_probs: bool = False,
) -> Any:
    longest = int(max_seqlen_q), int(max_seqlen_k)
    pairs = Pairs.variable((cu_seqlens_q, cu_seqlens_k), longest, window_size, causal)
    return _attention(pairs, kv, (q,), return_attn_probs)


def flash_attn_with_kvcache(*_: Any, **__: Any) -> Any:  # noqa: D103
    raise NotImplementedError("flash_attn_with_kvcache is for inference: it has no backward")


def _attention(
    pairs: Pairs, packed: torch.Tensor | None, given: tuple[torch.Tensor, ...], return_attn_probs: bool
) -> Any:
    for operand in (*given, *(() if packed is None else (packed,))):
        if operand.dtype not in _HALF:
            # As the real kernel says it.
            raise RuntimeError(
                f"FlashAttention only support fp16 and bf16 data type, not {operand.dtype}: choose the precision bf16 "
                "or fp16, or train under autocast"
            )
    output, sums, scores = FlashAttention.apply(pairs, packed, *given)  # type: ignore[no-untyped-call]
    return (output, sums, scores) if return_attn_probs else output


ENTRIES = entries(
    ("flash_attn", "flash_attn.flash_attn_interface"),
    flash_attn_func,
    flash_attn_qkvpacked_func,
    flash_attn_kvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_with_kvcache,
)
