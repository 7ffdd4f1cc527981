"""RWKV's recurrence, which transformers compiles a kernel of its own for when the model runs on a GPU.

Source: transformers 5.24.0, models/rwkv/modeling_rwkv.py (RwkvLinearAttention) and its wkv_cuda.cu. Operations: for
each position and channel, two exponentials weigh a numerator and a denominator, once for the output and once for the
state: counted as 16; backward runs through forward again and back, counted as three times that.
"""

from __future__ import annotations

from typing import Any

import torch

from planner.trace.operators.kernel import kernel

PACKAGE = "RWKV's CUDA kernel of transformers 5.24.0"


def _flop(decay: Any, first: Any, key: Any, value: Any) -> int:  # noqa: ARG001 - by the schema
    return 16 * key.numel()  # type: ignore[no-any-return]


def _backward_flop(gradient: Any, decay: Any, first: Any, key: Any, value: Any, output: Any) -> int:  # noqa: ARG001
    return 48 * key.numel()  # type: ignore[no-any-return]


@kernel("wkv_scan(Tensor decay, Tensor first, Tensor key, Tensor value) -> Tensor", PACKAGE, _flop)
def _wkv(decay: torch.Tensor, first: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    return torch.empty_like(key)


@kernel(
    "wkv_scan_backward(Tensor gradient, Tensor decay, Tensor first, Tensor key, Tensor value, Tensor output)"
    " -> Tensor[]",
    PACKAGE,
    _backward_flop,
)
def _wkv_backward(
    gradient: torch.Tensor,  # noqa: ARG001
    decay: torch.Tensor,
    first: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,  # noqa: ARG001
) -> list[torch.Tensor]:
    """Gradients of decay, first, key and value."""
    narrow = torch.bfloat16 if key.dtype == torch.bfloat16 else torch.float32
    return [torch.empty_like(decay, dtype=narrow), *(torch.empty_like(one) for one in (first, key, value))]


class _Wkv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, decay: torch.Tensor, first: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        ctx.dtype = key.dtype
        decay = -torch.exp(decay.float().contiguous())
        if key.dtype == torch.float16:
            first, key, value = first.float(), key.float(), value.float()
        first, key, value = first.contiguous(), key.contiguous(), value.contiguous()
        output = _wkv(decay, first, key, value)
        ctx.save_for_backward(decay, first, key, value, output)
        return output.to(ctx.dtype)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if ctx.dtype == torch.float16:
            gradient = gradient.float()
        made = _wkv_backward(gradient.contiguous(), *ctx.saved_tensors)
        return tuple(one.to(ctx.dtype) for one in made)


def rwkv_linear_attention(  # noqa: D103 - transformers' own
    time_decay: torch.Tensor,
    time_first: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    state: Any = None,
    return_state: bool = False,
) -> tuple[torch.Tensor, Any]:
    if state is not None or return_state:
        raise NotImplementedError("RWKV with a state is for inference: train with use_cache=False")
    return _Wkv.apply(time_decay, time_first, key, value), None  # type: ignore[no-untyped-call]
