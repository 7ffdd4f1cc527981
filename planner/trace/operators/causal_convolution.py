"""causal_conv1d: a short convolution along the sequence, each channel by itself, with its activation.

Source: causal_conv1d 1.6.1, causal_conv1d/causal_conv1d_interface.py, cpp_functions.py, csrc/causal_conv1d.cpp.
"""

from __future__ import annotations

from typing import Any

import torch

from planner.trace.operators.entry import entries
from planner.trace.operators.kernel import kernel

PACKAGE = "causal_conv1d 1.6.1"


def _flop(inputs: Any, weight: Any, *_: Any) -> int:
    return 2 * inputs.numel() * weight.shape[-1]  # type: ignore[no-any-return]


def _backward_flop(inputs: Any, weight: Any, *_: Any) -> int:
    return 2 * _flop(inputs, weight)


@kernel("causal_conv1d(Tensor inputs, Tensor weight, Tensor? bias) -> Tensor", PACKAGE, _flop)
def convolution(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:  # noqa: ARG001
    """(batch, channels, length) as the inputs lie."""
    return torch.empty_like(inputs)


@kernel(
    "causal_conv1d_backward(Tensor inputs, Tensor weight, Tensor? bias, Tensor gradient, Tensor? d_inputs) -> Tensor[]",
    PACKAGE,
    _backward_flop,
)
def _convolution_backward(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    gradient: torch.Tensor,  # noqa: ARG001 - by the schema
    d_inputs: torch.Tensor | None,
) -> list[torch.Tensor]:
    """Gradients of weight and bias in fp32, where it is summed; that of the inputs unless its place is given."""
    made = [torch.empty_like(inputs)] if d_inputs is None else []
    return [*made, *(torch.empty_like(one, dtype=torch.float32) for one in (weight, bias) if one is not None)]


def convolution_backward(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    gradient: torch.Tensor,
    d_inputs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Returns the gradients of inputs, weight and bias; the first in `d_inputs` where it is given."""
    made = _convolution_backward(inputs, weight, bias, gradient, d_inputs)
    if d_inputs is None:
        d_inputs, *made = made
    d_weight = made[0].to(weight.dtype)
    return d_inputs, d_weight, None if bias is None else made[1].to(bias.dtype)


class _CausalConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if x.stride(2) != 1 and x.stride(1) != 1:
            x = x.contiguous()
        ctx.save_for_backward(x, weight, bias)
        return convolution(x, weight, bias)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        if gradient.stride(2) != 1 and gradient.stride(1) != 1:
            gradient = gradient.contiguous()
        return convolution_backward(x, weight, bias, gradient)


def causal_conv1d_fn(  # noqa: D103 - causal_conv1d's own
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,  # noqa: ARG001 - tells packed sequences apart, at no cost
    initial_states: torch.Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: torch.Tensor | None = None,
    activation: str | None = None,  # noqa: ARG001 - within the kernel
) -> torch.Tensor:
    if initial_states is not None or return_final_states or final_states_out is not None:
        raise NotImplementedError("causal_conv1d_fn with states is for inference: only training is planned")
    return _CausalConvolution.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


ENTRIES = entries(("causal_conv1d", "causal_conv1d.causal_conv1d_interface"), causal_conv1d_fn)
