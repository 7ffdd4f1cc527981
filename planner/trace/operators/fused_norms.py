"""Norms in one kernel, of liger_kernel, apex and flash_attn: they keep their input and a few numbers per row.

Source: liger_kernel 0.8.2, ops/rms_norm.py and ops/layer_norm.py; apex 25.09, apex/normalization/fused_layer_norm.py;
flash_attn 2.8.3, flash_attn/ops/triton/layer_norm.py (without residual, dropout and a second input). A partial sum of
the weight's gradient for each multiprocessor is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from planner.trace.operators.entry import Entry, entries
from planner.trace.operators.flash_attention import PACKAGE as FLASH
from planner.trace.operators.kernel import kernel
from planner.trace.operators.liger_losses import PACKAGE as LIGER

APEX = "apex 25.09"


def _shapes(x: torch.Tensor, num_rows: int, num_statistics: int, is_wide: bool) -> list[torch.Tensor]:
    """Output and numbers per row, in fp32 or in the input's own type."""
    dtype = torch.float32 if is_wide else x.dtype
    return [torch.empty_like(x), *(x.new_empty(num_rows, dtype=dtype) for _ in range(num_statistics))]


def _backward_shapes(
    gradient: torch.Tensor, x: torch.Tensor, weights: list[torch.Tensor], in_place: bool
) -> list[torch.Tensor]:
    """Gradient of the input unless it takes the place of the output's, then those of the weights."""
    del gradient
    return [*([] if in_place else [torch.empty_like(x)]), *(torch.empty_like(weight) for weight in weights)]


def _norm(package: str, prefix: str) -> tuple[Any, Any]:
    forward = kernel(f"{prefix}_norm(Tensor x, int rows, int statistics, bool is_wide) -> Tensor[]", package)(_shapes)
    backward = kernel(
        f"{prefix}_norm_backward(Tensor(a!) gradient, Tensor x, Tensor[] weights, bool in_place) -> Tensor[]", package
    )(_backward_shapes)
    return forward, backward


_KERNELS = {package: _norm(package, prefix) for package, prefix in ((LIGER, "liger"), (APEX, "apex"), (FLASH, "flash"))}


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, package: str, kept: tuple[int, bool, bool, bool], *weights: torch.Tensor
    ) -> torch.Tensor:
        num_statistics, is_wide, ctx.in_place, keeps_output = kept
        ctx.package = package
        x = x.contiguous()
        num_rows = x.numel() // weights[0].numel()
        output, *statistics = _KERNELS[package][0](x, num_rows, num_statistics, is_wide)
        if keeps_output:
            # apex's memory_efficient: the input is computed again from the output; the mean is not needed.
            ctx.save_for_backward(output, statistics[-1], *weights)
        else:
            ctx.save_for_backward(x, *statistics, *weights)
        ctx.num_weights = len(weights)
        return output  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weights = ctx.saved_tensors[0], list(ctx.saved_tensors[-ctx.num_weights :])
        gradient = gradient.contiguous()
        made = _KERNELS[ctx.package][1](gradient, x, weights, ctx.in_place)
        return (gradient, None, None, *made) if ctx.in_place else (made[0], None, None, *made[1:])


def liger_rms_norm(  # noqa: D103 - liger_kernel's own
    X: torch.Tensor,  # noqa: N803
    W: torch.Tensor,  # noqa: N803
    eps: float,  # noqa: ARG001 - within the kernel
    offset: float = 0.0,  # noqa: ARG001
    casting_mode: str = "llama",
    in_place: bool = True,
) -> torch.Tensor:
    return _Norm.apply(X, LIGER, (1, casting_mode != "none", in_place, False), W)  # type: ignore[no-any-return, no-untyped-call]


def liger_layer_norm(X: torch.Tensor, W: torch.Tensor, B: torch.Tensor, eps: float) -> torch.Tensor:  # noqa: ARG001, D103, N803
    return _Norm.apply(X, LIGER, (2, False, False, False), W, B)  # type: ignore[no-any-return, no-untyped-call]


class LigerRMSNorm(nn.Module):
    """liger_kernel.transformers.LigerRMSNorm."""

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        offset: float = 0.0,
        casting_mode: str = "llama",
        init_fn: str = "ones",
        in_place: bool = True,
        row_mode: Any = None,  # noqa: ARG002
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size) if init_fn == "ones" else torch.zeros(hidden_size))
        self.variance_epsilon, self.offset, self.casting_mode, self.in_place = eps, offset, casting_mode, in_place

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return liger_rms_norm(
            hidden_states, self.weight, self.variance_epsilon, self.offset, self.casting_mode, self.in_place
        )


class LigerLayerNorm(nn.Module):
    """liger_kernel.transformers.LigerLayerNorm: it has a bias always."""

    def __init__(self, hidden_size: int, eps: float = 1e-6, bias: bool = False, init_fn: str = "ones") -> None:  # noqa: ARG002
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(hidden_size)), nn.Parameter(torch.zeros(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return liger_layer_norm(hidden_states, self.weight, self.bias, self.variance_epsilon)


class _ApexNorm(nn.Module):
    num_statistics = 2
    bias: nn.Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        if not elementwise_affine:
            raise NotImplementedError(f"{type(self).__name__} is planned for with elementwise_affine")
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.memory_efficient = torch.Size(shape), eps, memory_efficient
        self.weight = nn.Parameter(torch.ones(shape))
        if self.num_statistics == 2:
            self.bias = nn.Parameter(torch.zeros(shape))
        else:
            self.register_parameter("bias", None)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        bias = getattr(self, "bias", None)
        weights = (self.weight,) if bias is None else (self.weight, bias)
        kept = (len(weights), True, False, self.memory_efficient)
        return _Norm.apply(input, APEX, kept, *weights)  # type: ignore[no-any-return, no-untyped-call]


class FusedLayerNorm(_ApexNorm):
    """apex.normalization.FusedLayerNorm."""


class FusedRMSNorm(_ApexNorm):
    """apex.normalization.FusedRMSNorm."""

    num_statistics = 1


def rms_norm_fn(  # noqa: D103 - flash_attn's own
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None = None,
    eps: float = 1e-6,  # noqa: ARG001 - within the kernel
    **settings: Any,
) -> torch.Tensor:
    return _flash_norm(x, weight, bias, residual, settings, 1)


def layer_norm_fn(  # noqa: D103
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None = None,
    eps: float = 1e-6,  # noqa: ARG001
    is_rms_norm: bool = False,
    **settings: Any,
) -> torch.Tensor:
    return _flash_norm(x, weight, bias, residual, settings, 1 if is_rms_norm else 2)


def _flash_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    settings: dict[str, Any],
    num_statistics: int,
) -> torch.Tensor:
    asked = [
        name for name, value in {"residual": residual, **settings}.items() if value is not None and value is not False
    ]
    if asked:
        raise NotImplementedError(f"the norms of flash_attn are planned without {', '.join(asked)}")
    weights = (weight,) if bias is None else (weight, bias)
    return _Norm.apply(x, FLASH, (num_statistics, True, False, False), *weights)  # type: ignore[no-any-return, no-untyped-call]


def _of_apex(value: type[nn.Module], *names: str) -> tuple[Entry, ...]:
    modules = ("apex.normalization", "apex.normalization.fused_layer_norm")
    return tuple(Entry(module, name, value) for module in modules for name in names)


ENTRIES = (
    *entries(("liger_kernel.transformers.functional",), liger_rms_norm, liger_layer_norm),
    *entries(("liger_kernel.transformers", "liger_kernel.transformers.rms_norm"), LigerRMSNorm),
    *entries(("liger_kernel.transformers", "liger_kernel.transformers.layer_norm"), LigerLayerNorm),
    *_of_apex(FusedLayerNorm, "FusedLayerNorm", "MixedFusedLayerNorm"),
    *_of_apex(FusedRMSNorm, "FusedRMSNorm", "MixedFusedRMSNorm"),
    *entries(("flash_attn.ops.triton.layer_norm", "mamba_ssm.ops.triton.layer_norm"), rms_norm_fn, layer_norm_fn),
)
