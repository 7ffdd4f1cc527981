"""flash_attn's cross-entropy: one kernel that keeps the logits and a sum per row, and no copy in fp32.

Source: flash_attn 2.8.3, flash_attn/ops/triton/cross_entropy.py and flash_attn/losses/cross_entropy.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from planner.trace.operators.entry import entries
from planner.trace.operators.flash_attention import PACKAGE
from planner.trace.operators.kernel import contiguous_rows, kernel


@kernel("softmax_cross_entropy(Tensor logits, Tensor labels) -> Tensor[]", PACKAGE)
def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:  # noqa: ARG001 - by the schema
    """Losses, logarithms of the sums, and squares of those, of each row in fp32."""
    return [logits.new_empty(logits.shape[0], dtype=torch.float32) for _ in range(3)]


@kernel(
    "softmax_cross_entropy_backward(Tensor gradient, Tensor sums, Tensor labels, Tensor(a!) logits, bool in_place) "
    "-> Tensor[]",
    PACKAGE,
)
def _cross_entropy_backward(
    gradient: torch.Tensor,  # noqa: ARG001 - by the schema
    sums: torch.Tensor,  # noqa: ARG001
    labels: torch.Tensor,  # noqa: ARG001
    logits: torch.Tensor,
    in_place: bool,
) -> list[torch.Tensor]:
    """Gradient of the logits, unless it takes their place."""
    return [] if in_place else [torch.empty_like(logits)]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, in_place: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        (logits,) = contiguous_rows(logits)
        losses, sums, squares = _cross_entropy(logits, labels)
        ctx.save_for_backward(logits, sums, labels)
        ctx.mark_non_differentiable(squares)
        ctx.in_place = in_place
        return losses, squares

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor, None, None]:
        logits, sums, labels = ctx.saved_tensors
        made = _cross_entropy_backward(gradient, sums, labels, logits, ctx.in_place)
        return (logits if ctx.in_place else made[0]), None, None


def cross_entropy_loss(  # noqa: D103 - flash_attn's own
    logits: torch.Tensor,
    labels: torch.Tensor,
    precomputed_lse: torch.Tensor | None = None,  # noqa: ARG001
    label_smoothing: float = 0.0,  # noqa: ARG001 - within the kernel
    logit_scale: float = 1.0,  # noqa: ARG001
    lse_square_scale: float = 0.0,  # noqa: ARG001
    ignore_index: int = -100,  # noqa: ARG001
    inplace_backward: bool = False,
    process_group: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    if process_group is not None:
        raise NotImplementedError(
            "cross_entropy_loss over a group of ranks is tensor parallelism, which is not planned"
        )
    return _CrossEntropy.apply(logits, labels, inplace_backward)  # type: ignore[no-any-return, no-untyped-call]


class CrossEntropyLoss(nn.Module):
    """flash_attn.losses.cross_entropy.CrossEntropyLoss."""

    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,  # noqa: ARG002 - within the kernel
        logit_scale: float = 1.0,  # noqa: ARG002
        lse_square_scale: float = 0.0,  # noqa: ARG002
        inplace_backward: bool = False,
        process_group: Any = None,
        return_z_loss: bool = False,
    ) -> None:
        super().__init__()
        self.ignore_index, self.reduction, self.return_z_loss = ignore_index, reduction, return_z_loss
        self.inplace_backward, self.process_group = inplace_backward, process_group

    def forward(self, input: torch.Tensor, target: torch.Tensor, precomputed_lse: Any = None) -> Any:  # noqa: A002, D102
        loss, squares = cross_entropy_loss(
            input,
            target,
            precomputed_lse,
            inplace_backward=self.inplace_backward,
            process_group=self.process_group,
        )
        loss = self._reduced(loss, target)
        return (loss, self._reduced(squares, target)) if self.return_z_loss else loss

    def _reduced(self, losses: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if self.reduction == "mean":
            return losses.sum() / (target != self.ignore_index).sum()
        return losses.sum() if self.reduction == "sum" else losses


ENTRIES = (
    *entries(("flash_attn.losses.cross_entropy",), CrossEntropyLoss),
    *entries(("flash_attn.ops.triton.cross_entropy",), cross_entropy_loss),
)
