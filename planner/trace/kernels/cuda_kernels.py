"""The kernels that CUDA runs, on fake CPU tensors: other kernels keep other tensors for backward.

CPU's attention falls back to one that saves the whole score matrix where CUDA's does not, CPU's dropout saves a mask of
floats where CUDA's saves bytes, and recurrent layers run as one operator of cuDNN. Fake tensors of device "cuda" cannot
run backward without a CUDA build, so the CUDA operators are called on CPU ones: their shape rules and their autograd
formulas are the same.

Operators are replaced in torch's dispatcher, beneath every name that Python has for them, and for what torch itself
calls in C++. A `TorchFunctionMode` would be off while backward re-runs a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from planner.trace.kernels.attention_choice import AttentionCall, CudaTarget
from planner.trace.kernels.cuda_attention import cuda_attention
from planner.trace.kernels.cuda_recurrence import RecurrentKernels
from planner.trace.kernels.flex_attention import fused_flex_attention
from planner.trace.kernels.kernel_results import KernelResults
from planner.trace.kernels.packed_sequences import packed_sequence_kernels
from planner.trace.kernels.replaced_operators import replaced_operators

aten = torch.ops.aten


@contextmanager
def cuda_kernels(target: CudaTarget | None = None) -> Iterator[list[str]]:
    """Inside, attention, dropout, norms and recurrent layers save what CUDA's kernels save.

    Yields:
        What is not known of them, in sentences; it fills while on.
    """
    notes: list[str] = []
    target = target or CudaTarget()
    with ExitStack() as stack:
        stack.enter_context(replaced_operators(_kernels(target, notes), "AutogradCPU"))
        # With a kernel of its own, the norm's derivative is its formula and not that of its parts.
        stack.enter_context(replaced_operators({"_fused_rms_norm": _rms_norm_for_real}, "CPU"))
        stack.enter_context(fused_flex_attention(notes))
        stack.enter_context(KernelResults("cuda"))
        yield notes


def _kernels(target: CudaTarget, notes: list[str]) -> dict[str, Callable[..., Any]]:
    recurrent = RecurrentKernels(notes)
    return {
        "scaled_dot_product_attention": _attention(target),
        "dropout": _dropout,
        "rms_norm": _rms_norm,
        **recurrent.by_name(),
        **packed_sequence_kernels(),
    }


def _attention(target: CudaTarget) -> Callable[..., torch.Tensor]:
    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if attn_mask is not None and is_causal:
            raise RuntimeError("scaled_dot_product_attention: explicit attn_mask should not be set when is_causal=True")
        if any(tensor.is_nested for tensor in (query, key, value)):
            operator = aten.scaled_dot_product_attention.default
            options = (attn_mask, dropout_p, is_causal)
            return operator.decompose(query, key, value, *options, scale=scale, enable_gqa=enable_gqa)  # type: ignore[no-any-return]
        call = AttentionCall(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        return cuda_attention(call, scale, target)

    return attention


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:  # noqa: A002 - torch's name
    """Fused, with a mask of bytes. Source: torch 2.13, aten/src/ATen/native/Dropout.cpp, is_fused_kernel_acceptable."""
    if train and 0 < p < 1 and input.numel():
        return aten.native_dropout(input, p, True)[0]  # type: ignore[no-any-return]
    return aten.dropout.default.decompose(input, p, train)  # type: ignore[no-any-return]


def _rms_norm(
    input: torch.Tensor,  # noqa: A002 - torch's name
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """Fused unless types differ or channels are last.

    Source: torch 2.13, aten/src/ATen/native/layer_norm.cpp, rms_norm_symint.
    """
    is_last = input.dim() in (4, 5) and torch._prims_common.suggest_memory_format(input) is not torch.contiguous_format
    if is_last or input.is_complex() or (weight is not None and weight.dtype != input.dtype):
        return aten.rms_norm.default.decompose(input, normalized_shape, weight, eps)  # type: ignore[no-any-return]
    return aten._fused_rms_norm(input, normalized_shape, weight, eps)[0]  # type: ignore[no-any-return]


def _rms_norm_for_real(*args: Any) -> Any:
    """For the small tensors whose values the trace follows."""
    return aten._fused_rms_norm.default.decompose(*args)
