"""Losses, folds and bags of embeddings: memory behind a result that its elements do not need."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from planner.trace.kernels.memory_format import with_storage

_MODE_SUM, _MODE_MAX = 0, 2
"""Of bags of embeddings."""


def reduced_loss(call: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """The loss of every element is computed first, in the memory of the result.

    Source: torch 2.13, aten/src/ATen/native/Loss.cpp, mse_loss_out and others: `resize_` never gives memory back.
    """
    elements: Any = torch.broadcast_shapes(call["self"].shape, call["target"].shape)  # type: ignore[no-untyped-call]
    return result if result.dim() else with_storage(math.prod(elements), result)


def folded(call: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """The result begins as large as the input. Source: torch 2.13, aten/src/ATen/native/Col2Im.cpp, Im2Col.cpp."""
    return with_storage(call["self"].numel(), result)


def bag_places(call: dict[str, Any], result: Any) -> Any:
    """The bag of each index, kept for backward; a plain sum of bf16 keeps none, as of fp32 and fp16.

    Source: torch 2.13, aten/src/ATen/native/EmbeddingBag.cpp, make_offset2bag_out: one more than indices; and
    is_fast_path_index_select, which knows bf16 where the shape rule does not.
    """
    bags, bag_of, *rest = result
    is_plain_sum = call.get("mode", _MODE_SUM) == _MODE_SUM and call.get("per_sample_weights") is None
    if is_plain_sum and bags.dtype == torch.bfloat16 and call.get("padding_idx", -1) < 0:
        return (bags, bag_of.new_empty(0), *rest)
    if is_plain_sum or not bag_of.numel():
        return result
    return (bags, with_storage(bag_of.numel() + 1, bag_of), *rest)


def bag_places_on_cuda(call: dict[str, Any], result: Any) -> Any:
    """Source: torch 2.13, aten/src/ATen/native/cuda/EmbeddingBag.cu, _embedding_bag_cuda."""
    bags, indices = result[0], call["indices"]
    is_max = call.get("mode", _MODE_SUM) == _MODE_MAX
    return (
        bags,
        indices.new_empty(indices.shape[0]),
        indices.new_empty(call["offsets"].shape),
        indices.new_empty(bags.shape) if is_max else indices.new_empty(0),
    )


def ctc(call: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each sample, and the table of probabilities that backward reads.

    Without values of the lengths of the targets, all are as long as the longest can be: a bound.
    Source: torch 2.13, aten/src/ATen/native/LossCTC.cpp, ctc_loss_allocate_outputs.
    """
    log_probs, targets, lengths = call["log_probs"], call["targets"], call["target_lengths"]
    steps, batch = log_probs.shape[:2]
    known = getattr(lengths, "_shadow_value", None) if isinstance(lengths, torch.Tensor) else torch.tensor(lengths)
    with no_dispatch():
        longest = targets.shape[-1] if known is None else int(known.max())
    return log_probs.new_empty(batch), log_probs.new_empty(batch, steps, 2 * longest + 1)
