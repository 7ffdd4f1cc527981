"""FlashAttention-2: attention that keeps no scores, with its packed and its variable-length forms.

Source: flash_attn 2.8.3, flash_attn/flash_attn_interface.py (what is saved) and csrc/flash_attn/flash_api.cpp (what is
allocated). Operations as torch counts attention: 2 products of forward and 5 of backward over all pairs of positions,
a causal mask counted in full; a window is counted as wide as it is, since the kernel skips what is outside.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import pad
from torch.utils._mode_utils import no_dispatch

from planner.trace.operators.kernel import contiguous_rows, kernel, rounded

PACKAGE = "flash_attn 2.8.3"

_ROWS = 128
"""Queries are padded to so many, in the workspaces."""


def _forward_flop(query: Any, key: Any, value: Any, num_pairs: int, *_: Any) -> int:  # noqa: ARG001 - by the schema
    return 4 * num_pairs * query.shape[-2] * query.shape[-1]  # type: ignore[no-any-return]


def _backward_flop(gradient: Any, query: Any, key: Any, value: Any, num_pairs: int, *_: Any) -> int:  # noqa: ARG001
    return 10 * num_pairs * query.shape[-2] * query.shape[-1]  # type: ignore[no-any-return]


@kernel(
    "flash_attention(Tensor query, Tensor key, Tensor value, int num_pairs, int num_scores) -> Tensor[]",
    PACKAGE,
    _forward_flop,
)
def _flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,  # noqa: ARG001 - by the schema
    value: torch.Tensor,  # noqa: ARG001
    num_pairs: int,  # noqa: ARG001
    num_scores: int,
) -> list[torch.Tensor]:
    """Output, logarithms of the sums, dropped-out scores (empty unless asked for), state of the random numbers."""
    *outer, num_heads, _ = query.shape
    sums = (outer[0], num_heads, outer[1]) if len(outer) == 2 else (num_heads, outer[0])
    return [
        torch.empty_like(query),
        query.new_empty(sums, dtype=torch.float32),
        query.new_empty(num_scores),
        query.new_empty(2, dtype=torch.int64),
    ]


@kernel(
    "flash_attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, int num_pairs, "
    "int num_sequences, Tensor(a!) d_query, Tensor(b!) d_key, Tensor(c!) d_value) -> Tensor[]",
    PACKAGE,
    _backward_flop,
)
def _flash_attention_backward(
    gradient: torch.Tensor,  # noqa: ARG001 - by the schema
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,  # noqa: ARG001
    num_pairs: int,  # noqa: ARG001
    num_sequences: int,
    *written: torch.Tensor,  # noqa: ARG001
) -> list[torch.Tensor]:
    """Its workspaces: sums of rows, gradient of the queries in fp32, gradients of shared keys and values unshared."""
    *outer, num_heads, head_size = query.shape
    num_rows = outer[0] * rounded(outer[1], _ROWS) if len(outer) == 2 else outer[0] + _ROWS * num_sequences
    wide = rounded(head_size, 32 if head_size <= 128 else 64)
    workspaces = [
        query.new_empty(num_heads * num_rows, dtype=torch.float32),
        query.new_empty(num_heads * num_rows * wide, dtype=torch.float32),
    ]
    if key.shape[-2] != num_heads:
        workspaces += [query.new_empty(*key.shape[:-2], num_heads, head_size) for _ in range(2)]
    return workspaces


class Pairs:
    """How many pairs of a query and a key there are in a call."""

    def __init__(self, num_pairs: int, num_sequences: int, num_scores: int, kept: tuple[torch.Tensor, ...]) -> None:
        self.num_pairs, self.num_sequences, self.num_scores = num_pairs, num_sequences, num_scores
        self.kept = kept
        """Tensors that are saved beside the operands: where the sequences begin."""

    @classmethod
    def fixed(
        cls, query: torch.Tensor, key: torch.Tensor, window: tuple[int, int], causal: bool, wants_scores: bool
    ) -> Pairs:
        """For sequences of equal length: (batch, length, heads, head size)."""
        batch, num_queries, num_heads, _ = query.shape
        seen = _seen(key.shape[1], window, causal)
        num_scores = batch * num_heads * rounded(num_queries, _ROWS) * rounded(key.shape[1], _ROWS)
        return cls(batch * num_queries * seen, batch, num_scores if wants_scores else 0, ())

    @classmethod
    def variable(
        cls,
        begins: tuple[torch.Tensor, torch.Tensor],
        longest: tuple[int, int],
        window: tuple[int, int],
        causal: bool,
    ) -> Pairs:
        """For sequences laid one after the other; where their lengths are not known, all are the longest."""
        num_sequences = begins[0].shape[0] - 1
        queries, keys = (_lengths(begin, most) for begin, most in zip(begins, longest, strict=True))
        num_pairs = sum(q * _seen(k, window, causal) for q, k in zip(queries, keys, strict=True))
        return cls(num_pairs, num_sequences, 0, begins)


class FlashAttention(torch.autograd.Function):
    """Attention of separate or packed operands: the gradients of packed ones are slices of one tensor."""

    @staticmethod
    def forward(  # noqa: D102 - torch's own method
        ctx: Any, pairs: Pairs, packed: torch.Tensor | None, *given: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        operands = (*given, *(() if packed is None else packed.detach().unbind(-3)))
        ctx.head_size, ctx.pairs, ctx.num_given = operands[0].shape[-1], pairs, len(given)
        spare = -ctx.head_size % 8
        if spare:
            operands = tuple(pad(operand, (0, spare)) for operand in operands)
        output, sums, scores, state = _flash_attention(*contiguous_rows(*operands), pairs.num_pairs, pairs.num_scores)
        ctx.save_for_backward(*operands, output, sums, state, *pairs.kept)
        ctx.mark_non_differentiable(sums, scores)
        return (output[..., : ctx.head_size] if spare else output), sums, scores

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:  # noqa: D102
        operands = ctx.saved_tensors[:3]
        given = [torch.empty_like(operand) for operand in operands[: ctx.num_given]]
        packed, written = None, list(given)
        if ctx.num_given < 3:
            like = operands[-1]
            packed = like.new_empty(*like.shape[:-2], 3 - ctx.num_given, *like.shape[-2:])
            written += packed.unbind(-3)
        spare = -ctx.head_size % 8
        if spare:
            gradient = pad(gradient, (0, spare))
        inputs = contiguous_rows(gradient, *operands)
        _flash_attention_backward(*inputs, ctx.pairs.num_pairs, ctx.pairs.num_sequences, *written)
        if spare:
            packed = None if packed is None else packed[..., : ctx.head_size]
            given = [one[..., : ctx.head_size] for one in given]
        return None, packed, *given


def _lengths(begins: torch.Tensor, longest: int) -> list[int]:
    values = getattr(begins, "_shadow_value", None)
    if values is None:
        return [longest] * (begins.shape[0] - 1)
    with no_dispatch():
        numbers: list[int] = values.tolist()
    return [after - before for before, after in pairwise(numbers)]


def _seen(num_keys: int, window: tuple[int, int], causal: bool) -> int:
    """Returns the keys that a query sees: all, or those of its window."""
    left, right = window[0], 0 if causal else window[1]
    return num_keys if left < 0 or right < 0 else min(num_keys, left + right + 1)
