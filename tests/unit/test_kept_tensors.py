"""What each described kernel's function keeps for backward, tensor by tensor, as its package's source has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from planner.trace.operators import (
    causal_convolution,
    chunk_scan,
    cross_entropy,
    delta_rule,
    fused_elementwise,
    fused_norms,
    linear_attention,
    mamba2_inner,
    memory_efficient,
    selective_scan,
)

B, L, D, H, N, G, C = 2, 96, 64, 4, 16, 1, 32
"""Batch, length, channels, heads, states, groups, chunk."""
P = D // H
BF16, FP32, INT64 = torch.bfloat16, torch.float32, torch.int64


def t(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, requires_grad=dtype.is_floating_point)


def kept(function: Callable[[], Any]) -> Counter[tuple[tuple[int, ...], torch.dtype]]:
    """The tensors that the function's node of autograd holds; backward has to run and fit the operands."""
    with FakeTensorMode():
        output = function()
        output = output[0] if isinstance(output, tuple) else output
        node = output.grad_fn
        while not hasattr(node, "saved_tensors"):
            node = node.next_functions[0][0]
        saved = [tensor for tensor in node.saved_tensors if tensor is not None]
        output.float().sum().backward()
    return Counter((tuple(tensor.shape), tensor.dtype) for tensor in saved)


def of(*tensors: tuple[tuple[int, ...], torch.dtype]) -> Counter[tuple[tuple[int, ...], torch.dtype]]:
    return Counter(tensors)


X, WIDE = ((B, D, L), BF16), D + 2 * G * N


CASES: dict[str, tuple[Callable[[], Any], Counter[Any]]] = {
    "causal_conv1d_fn": (
        lambda: causal_convolution.causal_conv1d_fn(t(B, D, L), t(D, 4), t(D), activation="silu"),
        of(X, ((D, 4), BF16), ((D,), BF16)),
    ),
    "selective_scan_fn without a gate": (
        lambda: selective_scan.selective_scan_fn(t(B, D, L), t(B, D, L), t(D, N, dtype=FP32), t(B, N, L), t(B, N, L)),
        of(X, X, ((D, N), FP32), ((B, 1, N, L), BF16), ((B, 1, N, L), BF16), ((B, D, 1, 2 * N), FP32)),
    ),
    "selective_scan_fn with a gate": (
        lambda: selective_scan.selective_scan_fn(
            t(B, D, L), t(B, D, L), t(D, N, dtype=FP32), t(B, N, L), t(B, N, L), t(D, dtype=FP32), t(B, D, L)
        ),
        of(X, X, X, X, ((D, N), FP32), ((B, 1, N, L), BF16), ((B, 1, N, L), BF16), ((D,), FP32))
        + of(((B, D, 1, 2 * N), FP32)),
    ),
    "mamba_chunk_scan_combined": (
        lambda: chunk_scan.mamba_chunk_scan_combined(
            t(B, L, H, P), t(B, L, H), t(H, dtype=FP32), t(B, L, G, N), t(B, L, G, N), C, t(H)
        ),
        of(((B, L, H, P), BF16), ((B, L, H, P), BF16), ((B, L, H), BF16), ((B, H, L // C, C), FP32), ((H,), FP32))
        + of(((B, L, G, N), BF16), ((B, L, G, N), BF16), ((H,), BF16)),
    ),
    "mamba_split_conv1d_scan_combined": (
        lambda: mamba2_inner.mamba_split_conv1d_scan_combined(
            t(B, L, D + WIDE + H), t(WIDE, 4), t(WIDE), t(H), t(H, dtype=FP32), t(H), C, rmsnorm_weight=t(D),
            outproj_weight=t(D, D), headdim=P,
        ),
        of(((B, L, D + WIDE + H), BF16), ((WIDE, 4), BF16), ((WIDE,), BF16), ((B, L, H, P), BF16), ((H,), FP32))
        + of(((H,), BF16), ((H,), BF16), ((D,), BF16), ((B * L,), FP32), ((D, D), BF16)),
    ),
    "chunk_gated_delta_rule": (
        lambda: delta_rule.chunk_gated_delta_rule(
            t(B, L, 2, P), t(B, L, 2, P), t(B, L, H, P), t(B, L, H, dtype=FP32), t(B, L, H),
            use_qk_l2norm_in_kernel=True,
        ),
        of(*[((B, L, 2, P), BF16)] * 2, *[((B, L, 2), FP32)] * 2, ((B, L, H, P), BF16), ((B, L, H), FP32))
        + of(((B, L, H), BF16), ((B, L, H, 64), BF16)),
    ),
    "rwkv_linear_attention": (
        lambda: linear_attention.rwkv_linear_attention(t(D), t(D), t(B, L, D), t(B, L, D)),
        of(((D,), FP32), ((D,), BF16), *[((B, L, D), BF16)] * 3),
    ),
    "memory_efficient_attention": (
        lambda: memory_efficient.memory_efficient_attention(t(B, L, H, P), t(B, L, H, P), t(B, L, H, P)),
        of(*[((B, L, H, P), BF16)] * 4, ((B, H, L), FP32), ((2,), INT64)),
    ),
    "cross_entropy_loss": (
        lambda: cross_entropy.cross_entropy_loss(t(L, 100), t(L, dtype=INT64)),
        of(((L, 100), BF16), ((L,), FP32), ((L,), INT64)),
    ),
    "LigerRMSNorm": (
        lambda: fused_norms.LigerRMSNorm(D).to(BF16)(t(B, L, D)),
        of(((B, L, D), BF16), ((B * L,), FP32), ((D,), BF16)),
    ),
    "FusedLayerNorm": (
        lambda: fused_norms.FusedLayerNorm(D).to(BF16)(t(B, L, D)),
        of(((B, L, D), BF16), *[((B * L,), FP32)] * 2, *[((D,), BF16)] * 2),
    ),
    "FusedLayerNorm that keeps its output": (
        lambda: fused_norms.FusedLayerNorm(D, memory_efficient=True).to(BF16)(t(B, L, D)),
        of(((B, L, D), BF16), ((B * L,), FP32), *[((D,), BF16)] * 2),
    ),
    "liger_swiglu": (
        lambda: fused_elementwise.liger_swiglu(t(B, L, D), t(B, L, D)),
        of(*[((B, L, D), BF16)] * 2),
    ),
    "liger_rotary_pos_emb": (
        lambda: fused_elementwise.liger_rotary_pos_emb(t(B, H, L, P), t(B, H, L, P), t(1, L, P), t(1, L, P)),
        of(*[((1, L, P), BF16)] * 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_function_keeps_what_its_package_keeps(name: str) -> None:
    function, expected = CASES[name]
    assert kept(function) == expected
