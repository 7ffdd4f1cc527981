"""Packed sequences (`torch.nn.utils.rnn`) of fake tensors: torch reads their lengths from memory, which has none.

The values of lengths are those that the trace follows beside fake tensors.
Source: torch 2.13, aten/src/ATen/native/PackedSequence.cpp.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch


class UnknownLengthsError(ValueError):
    """The lengths of packed sequences depend on what the model computes."""


def packed_sequence_kernels() -> dict[str, Callable[..., Any]]:
    """Returns what takes the place of the operators that read lengths, by name."""
    return {"_pad_packed_sequence": _pad, "_pack_padded_sequence_backward": _pack_backward}


def pack(call: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the tokens of all sequences, one step after the other, and how many there are in each step."""
    source, lengths = call["input"], known_lengths(call["lengths"])
    in_step = [sum(length > step for length in lengths) for step in range(max(lengths))]
    data = source.new_empty(sum(lengths), *source.shape[2:])
    batch_sizes = torch.empty(len(in_step), dtype=torch.int64)
    with no_dispatch():
        batch_sizes._shadow_value = torch.tensor(in_step)  # type: ignore[attr-defined]
    return data, batch_sizes


def _pad(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = known_lengths(batch_sizes)
    shape = (max(len(sizes), total_length), sizes[0], *data.shape[1:])
    output = torch.full(shape, padding_value, dtype=data.dtype, device=data.device)
    step = offset = 0
    for size, group in itertools.groupby(sizes):
        end = step + len(list(group))
        tokens = data[offset : offset + size * (end - step)].view(end - step, size, *data.shape[1:])
        output[step:end, :size].copy_(tokens)
        step, offset = end, offset + size * (end - step)
    lengths = torch.tensor([sum(size > sequence for size in sizes) for sequence in range(sizes[0])])
    return (output.transpose(0, 1) if batch_first else output), lengths


def _pack_backward(
    grad: torch.Tensor, input_size: Sequence[int], batch_sizes: torch.Tensor, batch_first: bool
) -> torch.Tensor:
    first, second, *rest = input_size
    shape = (second, first, *rest) if batch_first else (first, second, *rest)
    gradient = torch.zeros(shape, dtype=grad.dtype, device=grad.device)
    ends = itertools.accumulate(known_lengths(batch_sizes))
    for step, (size, end) in enumerate(zip(known_lengths(batch_sizes), ends, strict=True)):
        gradient[step][:size].copy_(grad[end - size : end])
    return gradient.transpose(0, 1) if batch_first else gradient


def known_lengths(lengths: torch.Tensor) -> list[int]:
    """Returns the values of lengths, or of the number of sequences in each step.

    Raises:
        UnknownLengthsError: They have none.
    """
    value = getattr(lengths, "_shadow_value", None)
    if value is None:
        raise UnknownLengthsError(
            "the lengths of packed sequences depend on what the model computes; give them with the batch"
        )
    with no_dispatch():
        return [int(length) for length in value.tolist()]
