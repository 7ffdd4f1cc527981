"""Gates and rotations of positions in one kernel: liger_kernel's work in place, flash_attn's rotates a copy.

Source: liger_kernel 0.8.2, ops/swiglu.py, ops/geglu.py (backward writes the gradients over what was kept) and
ops/rope.py; flash_attn 2.8.3, flash_attn/layers/rotary.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from planner.trace.operators.entry import entries
from planner.trace.operators.flash_attention import PACKAGE as FLASH
from planner.trace.operators.kernel import kernel
from planner.trace.operators.liger_losses import PACKAGE


@kernel("liger_gate(Tensor a, Tensor b) -> Tensor", PACKAGE)
def _gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # noqa: ARG001 - by the schema
    return torch.empty_like(a)


@kernel("liger_gate_backward(Tensor gradient, Tensor(a!) a, Tensor(b!) b) -> ()", PACKAGE)
def _gate_backward(gradient: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Writes the gradients over a and b."""


@kernel("liger_rotate(Tensor(a!) query, Tensor(b!) key, Tensor cos, Tensor sin) -> ()", PACKAGE)
def _rotate(query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotates in place."""


@kernel("flash_rotate(Tensor x, Tensor cos, Tensor sin) -> Tensor", FLASH)
def _flash_rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    return torch.empty_like(x)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        ctx.save_for_backward(a, b)
        return _gate(a, b)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = ctx.saved_tensors
        _gate_backward(gradient.contiguous(), a, b)
        return a, b


class _LigerRotation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        query, key = (one.transpose(1, 2).contiguous() for one in (query, key))
        _rotate(query, key, cos, sin)
        ctx.save_for_backward(cos, sin)
        return query.transpose(1, 2), key.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, d_query: torch.Tensor, d_key: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        d_query, d_key = (one.transpose(1, 2).contiguous() for one in (d_query, d_key))
        _rotate(d_query, d_key, cos, sin)
        return d_query.transpose(1, 2), d_key.transpose(1, 2), None, None


class _FlashRotation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        return _flash_rotate(x, cos, sin)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _flash_rotate(gradient, cos, sin), None, None


def liger_swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # noqa: D103 - liger_kernel's own
    return _Gate.apply(a, b)  # type: ignore[no-any-return, no-untyped-call]


def liger_geglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # noqa: D103
    return _Gate.apply(a, b)  # type: ignore[no-any-return, no-untyped-call]


def liger_rotary_pos_emb(  # noqa: D103
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position_ids: Any = None,  # noqa: ARG001
    unsqueeze_dim: int = 1,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor]:
    return _LigerRotation.apply(q, k, cos, sin)  # type: ignore[no-any-return, no-untyped-call]


class _GatedLayers(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.hidden_size, self.intermediate_size = config, config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.up_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.down_proj = nn.Linear(self.intermediate_size, self.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(liger_swiglu(self.gate_proj(x), self.up_proj(x)))  # type: ignore[no-any-return]


class LigerSwiGLUMLP(_GatedLayers):
    """liger_kernel.transformers.LigerSwiGLUMLP."""


class LigerGEGLUMLP(_GatedLayers):
    """liger_kernel.transformers.LigerGEGLUMLP."""


def apply_rotary_emb(  # noqa: D103 - flash_attn's own
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,  # noqa: ARG001 - within the kernel
    inplace: bool = False,
    seqlen_offsets: Any = 0,  # noqa: ARG001
    cu_seqlens: Any = None,  # noqa: ARG001
    max_seqlen: Any = None,  # noqa: ARG001
) -> torch.Tensor:
    if inplace:
        raise NotImplementedError("apply_rotary_emb is planned without inplace")
    return _FlashRotation.apply(x, cos, sin)  # type: ignore[no-any-return, no-untyped-call]


ENTRIES = (
    *entries(("liger_kernel.transformers.functional",), liger_swiglu, liger_geglu, liger_rope=liger_rotary_pos_emb),
    *entries(("liger_kernel.transformers", "liger_kernel.transformers.rope"), liger_rotary_pos_emb),
    *entries(("liger_kernel.transformers", "liger_kernel.transformers.swiglu"), LigerSwiGLUMLP),
    *entries(("liger_kernel.transformers", "liger_kernel.transformers.geglu"), LigerGEGLUMLP),
    *entries(("flash_attn.layers.rotary",), apply_rotary_emb, apply_rotary_emb_func=apply_rotary_emb),
)
