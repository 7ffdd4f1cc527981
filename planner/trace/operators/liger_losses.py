"""liger_kernel's losses: the gradient is computed in forward, so that neither logits nor their sums are kept.

Source: liger_kernel 0.8.2, ops/cross_entropy.py and ops/fused_linear_cross_entropy.py: the gradient of the logits takes
their place; fused with the last linear layer, the logits of one chunk of rows are all that there is at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from planner.trace.operators.entry import entries
from planner.trace.operators.kernel import kernel

PACKAGE = "liger_kernel 0.8.2"


@kernel("liger_cross_entropy(Tensor(a!) logits, Tensor labels) -> Tensor", PACKAGE)
def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # noqa: ARG001 - by the schema
    """Losses of the rows in fp32; the logits become their gradient."""
    return logits.new_empty(logits.shape[0], dtype=torch.float32)


@kernel("liger_scale(Tensor(a!) gradient, Tensor factor) -> ()", PACKAGE)
def _scale(gradient: torch.Tensor, factor: torch.Tensor) -> None:
    """Scales in place."""


class _LigerCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor, reduction: str) -> torch.Tensor:
        if logits.stride(-1) != 1:
            logits = logits.contiguous()
        losses = _cross_entropy(logits, labels)
        ctx.save_for_backward(logits.detach())
        return losses if reduction == "none" else losses.sum()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (made,) = ctx.saved_tensors
        if gradient.dim() > 0:
            return made * gradient.unsqueeze(1), None, None
        _scale(made, gradient)
        return made, None, None


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        bias: torch.Tensor | None,
        accumulate_in: torch.dtype | None,
    ) -> torch.Tensor:
        num_rows, chunk = inputs.shape[0], _rows_at_once(inputs, weight)
        d_inputs = torch.zeros_like(inputs)
        d_weight = torch.zeros_like(weight, dtype=accumulate_in) if ctx.needs_input_grad[1] else None
        d_bias = None if bias is None else torch.zeros_like(bias, dtype=accumulate_in)
        losses = inputs.new_zeros(num_rows, dtype=torch.float32)
        for begin in range(0, num_rows, chunk):
            rows = inputs[begin : begin + chunk]
            logits = rows @ weight.t()
            logits = logits if bias is None else logits + bias
            losses[begin : begin + chunk] = _cross_entropy(logits, labels[begin : begin + chunk])
            d_inputs[begin : begin + chunk] = logits @ weight
            if d_weight is not None:
                d_weight += torch.mm(logits.t(), rows).float()
            if d_bias is not None:
                d_bias += logits.sum(dim=0)
            del logits
        total = losses.sum()
        d_weight = None if d_weight is None else d_weight.to(weight.dtype)
        ctx.save_for_backward(d_inputs, d_weight, d_bias if bias is None or d_bias is None else d_bias.to(bias.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        d_inputs, d_weight, d_bias = ctx.saved_tensors
        for made in (d_inputs, d_weight, d_bias):
            if made is not None:
                _scale(made, gradient)
        return d_inputs, d_weight, None, d_bias, None


def _rows_at_once(inputs: torch.Tensor, weight: torch.Tensor) -> int:
    """Returns so many rows that their logits are about as large as all inputs; a power of two."""
    growth = -(-weight.shape[0] // inputs.shape[1])
    rows = -(-inputs.shape[0] // growth)
    return 1 << (rows - 1).bit_length()


def liger_cross_entropy(  # noqa: D103 - liger_kernel's own
    input: torch.Tensor,  # noqa: A002
    target: torch.Tensor,
    weight: Any = None,  # noqa: ARG001 - within the kernel
    size_average: Any = None,  # noqa: ARG001
    ignore_index: int = -100,  # noqa: ARG001
    reduce: Any = None,  # noqa: ARG001
    reduction: str = "mean",
    **settings: Any,
) -> torch.Tensor:
    _refuse(settings)
    return _LigerCrossEntropy.apply(input, target, reduction)  # type: ignore[no-any-return, no-untyped-call]


def liger_fused_linear_cross_entropy(  # noqa: D103
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None = None,
    accum_dtype: torch.dtype | None = None,
    reduction: str = "mean",
    **settings: Any,
) -> torch.Tensor:
    _refuse(settings)
    if reduction == "none":
        raise NotImplementedError("liger_fused_linear_cross_entropy is planned for the reductions mean and sum")
    return _FusedLinear.apply(input, weight, target, bias, accum_dtype)  # type: ignore[no-any-return, no-untyped-call]


class LigerCrossEntropyLoss(nn.Module):
    """liger_kernel.transformers.LigerCrossEntropyLoss."""

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", **settings: Any) -> None:  # noqa: ARG002
        super().__init__()
        _refuse(settings)
        self.reduction = reduction

    def forward(self, _input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return liger_cross_entropy(_input, target, reduction=self.reduction)


class LigerFusedLinearCrossEntropyLoss(nn.Module):
    """liger_kernel.transformers.LigerFusedLinearCrossEntropyLoss."""

    def __init__(
        self,
        ce_weight: Any = None,  # noqa: ARG002 - within the kernel
        ignore_index: int = -100,  # noqa: ARG002
        reduction: str = "mean",
        accum_dtype: torch.dtype | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        _refuse(settings)
        self.reduction, self.accum_dtype = reduction, accum_dtype

    def forward(  # noqa: D102
        self, lin_weight: torch.Tensor, _input: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return liger_fused_linear_cross_entropy(_input, lin_weight, target, bias, self.accum_dtype, self.reduction)


_FREE = ("ignore_index", "label_smoothing", "lse_square_scale", "softcap", "ce_weight")
"""Settings within the kernel."""


def _refuse(settings: dict[str, Any]) -> None:
    unknown = [name for name, value in settings.items() if value and name not in _FREE]
    if unknown:
        raise NotImplementedError(f"liger_kernel's losses are planned without {', '.join(unknown)}")


ENTRIES = (
    *entries(("liger_kernel.transformers", "liger_kernel.transformers.functional"), liger_cross_entropy,
             liger_fused_linear_cross_entropy),
    *entries(("liger_kernel.transformers", "liger_kernel.transformers.cross_entropy"), LigerCrossEntropyLoss),
    *entries(("liger_kernel.transformers", "liger_kernel.transformers.fused_linear_cross_entropy"),
             LigerFusedLinearCrossEntropyLoss),
)  # fmt: skip
