"""The functions of flash_attn that take the padding out of a batch and put it back.

Source: flash_attn 2.8.3, flash_attn/bert_padding.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from planner.trace.operators.entry import entries


class _Take(torch.autograd.Function):
    """Rows by their indices; unlike indexing, it keeps the indices alone and repeats them over a row."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(indices)
        ctx.num_rows, rest = values.shape[0], values.shape[1:]
        rows = values.reshape(ctx.num_rows, -1)
        return torch.gather(rows, 0, _repeated(indices, rows.shape[1])).reshape(-1, *rest)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (indices,) = ctx.saved_tensors
        rows = gradient.reshape(gradient.shape[0], -1)
        made = rows.new_zeros(ctx.num_rows, rows.shape[1])
        made.scatter_(0, _repeated(indices, rows.shape[1]), rows)
        return made.reshape(ctx.num_rows, *gradient.shape[1:]), None


class _Put(torch.autograd.Function):
    """Rows at their indices among zeros."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, indices: torch.Tensor, num_rows: int) -> torch.Tensor:
        ctx.save_for_backward(indices)
        made = values.new_zeros(num_rows, *values.shape[1:])
        made[indices] = values
        return made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (indices,) = ctx.saved_tensors
        return gradient[indices], None, None


def index_first_axis(input: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:  # noqa: A002, D103 - flash_attn's
    return _Take.apply(input, indices)  # type: ignore[no-any-return, no-untyped-call]


def index_put_first_axis(values: torch.Tensor, indices: torch.Tensor, first_axis_dim: int) -> torch.Tensor:  # noqa: D103
    return _Put.apply(values, indices, first_axis_dim)  # type: ignore[no-any-return, no-untyped-call]


def unpad_input(  # noqa: D103
    hidden_states: torch.Tensor, attention_mask: torch.Tensor, unused_mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
    mask = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten()).flatten()
    longest = int(lengths.max().item())
    begins = pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, begins, longest, used


def pad_input(hidden_states: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:  # noqa: D103
    return index_put_first_axis(hidden_states, indices, batch * seqlen).view(batch, seqlen, *hidden_states.shape[1:])


def _repeated(indices: torch.Tensor, width: int) -> torch.Tensor:
    return indices[:, None].repeat(1, width)


ENTRIES = entries(("flash_attn.bert_padding",), index_first_axis, index_put_first_axis, unpad_input, pad_input)
