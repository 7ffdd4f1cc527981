"""Mamba-2's whole inner layer as one autograd function: convolution, scan in chunks, gated norm, output projection.

Source: mamba_ssm 2.3.2, mamba_ssm/ops/triton/ssd_combined.py (MambaSplitConv1dScanCombinedFn), layernorm_gated.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from planner.trace.operators.causal_convolution import convolution, convolution_backward
from planner.trace.operators.chunk_scan import chunk_scan, chunk_scan_backward
from planner.trace.operators.entry import entries
from planner.trace.operators.kernel import kernel
from planner.trace.operators.selective_scan import PACKAGE


@kernel("gated_rms_norm(Tensor x, Tensor weight, Tensor z, int groups) -> Tensor[]", PACKAGE)
def _gated_norm(x: torch.Tensor, weight: torch.Tensor, z: torch.Tensor, groups: int) -> list[torch.Tensor]:  # noqa: ARG001
    """Output, and the scale of each row and group in fp32."""
    num_rows = x.numel() // x.shape[-1]
    return [torch.empty_like(x), x.new_empty(groups * num_rows, dtype=torch.float32)]


@kernel(
    "gated_rms_norm_backward(Tensor gradient, Tensor x, Tensor weight, Tensor z, Tensor scales, Tensor(a!) d_z, "
    "Tensor(b!)? again) -> Tensor[]",
    PACKAGE,
)
def _gated_norm_backward(
    gradient: torch.Tensor,  # noqa: ARG001 - by the schema
    x: torch.Tensor,
    weight: torch.Tensor,
    *_: Any,
) -> list[torch.Tensor]:
    """Gradients of x and of the weight."""
    return [torch.empty_like(x), torch.empty_like(weight)]


class _Sizes(NamedTuple):
    chunk: int
    num_heads: int
    head_size: int
    groups: int

    @property
    def width(self) -> int:
        return self.num_heads * self.head_size


class _Mamba2Inner(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        sizes: _Sizes,
        zxbcdt: torch.Tensor,
        conv_weight: torch.Tensor,
        conv_bias: torch.Tensor | None,
        bias: torch.Tensor,
        a: torch.Tensor,
        d: torch.Tensor,
        norm_weight: torch.Tensor | None,
        out_weight: torch.Tensor | None,
        out_bias: torch.Tensor | None,
    ) -> torch.Tensor:
        ctx.sizes = sizes
        z, xbc, steps = _parts(zxbcdt, conv_weight, sizes)
        x, b, c = _convolved(xbc, conv_weight, conv_bias, sizes)
        gate = _heads(z, sizes.num_heads) if norm_weight is None else None
        output, before_gate, sums, _ = chunk_scan(x, steps, b, c, sizes.chunk, gate)
        del sums
        output, scales = output.flatten(2), None
        if norm_weight is not None:
            output, scales = _gated_norm(output, norm_weight, z, sizes.groups)
        if out_weight is not None:
            if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
                dtype = torch.get_autocast_dtype("cuda" if torch.is_autocast_enabled("cuda") else "cpu")
                output, out_weight = output.to(dtype), out_weight.to(dtype)
                out_bias = None if out_bias is None else out_bias.to(dtype)
            output = linear(output, out_weight, out_bias)
        ctx.save_for_backward(
            zxbcdt, conv_weight, conv_bias, before_gate, a, d, bias, norm_weight, scales, out_weight, out_bias
        )
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        zxbcdt, conv_weight, conv_bias, before_gate, *rest = ctx.saved_tensors
        a, d, bias, norm_weight, scales, out_weight, out_bias = rest
        sizes: _Sizes = ctx.sizes
        again = None if out_weight is None else before_gate.new_empty(*before_gate.shape[:2], sizes.width)
        z, xbc, steps = _parts(zxbcdt, conv_weight, sizes)
        x, b, _ = _convolved(xbc, conv_weight, conv_bias, sizes)
        d_zxbcdt = torch.empty_like(zxbcdt)
        d_z, d_xbc, d_steps = _parts(d_zxbcdt, conv_weight, sizes)
        d_convolved = torch.empty_like(xbc)
        places = (*_operands(d_convolved, sizes), d_steps)
        d_output = gradient if out_weight is None else linear(gradient, out_weight.t())
        d_norm_weight, gate = None, None
        if norm_weight is None:
            gate = _heads(z, sizes.num_heads)
        else:
            operands = (d_output, before_gate.flatten(2), norm_weight, z, scales)
            d_output, d_norm_weight = _gated_norm_backward(*operands, d_z, again)
        d_output = _heads(d_output, sizes.num_heads)
        made = chunk_scan_backward(d_output, (x, steps, a, b, d, gate, bias), sizes.chunk, places)
        d_a, d_d, _, d_bias = made
        d_out_weight = d_out_bias = None
        if out_weight is not None and again is not None:
            d_out_weight = gradient.flatten(0, 1).t() @ again.flatten(0, 1)
            d_out_bias = None if out_bias is None else gradient.sum((0, 1))
        _, d_conv_weight, d_conv_bias = convolution_backward(
            xbc.transpose(1, 2), conv_weight, conv_bias, d_convolved.transpose(1, 2), d_xbc.transpose(1, 2)
        )
        return (
            None, d_zxbcdt, d_conv_weight, d_conv_bias, d_bias, d_a, d_d, d_norm_weight, d_out_weight, d_out_bias,
        )  # fmt: skip


def _parts(zxbcdt: torch.Tensor, conv_weight: torch.Tensor, sizes: _Sizes) -> tuple[torch.Tensor, ...]:
    """Gate, what the convolution reads, and steps: views."""
    return zxbcdt.split([sizes.width, conv_weight.shape[0], sizes.num_heads], dim=-1)  # type: ignore[no-any-return, no-untyped-call]


def _convolved(
    xbc: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, sizes: _Sizes
) -> tuple[torch.Tensor, ...]:
    return _operands(convolution(xbc.transpose(1, 2), weight, bias).transpose(1, 2), sizes)


def _operands(xbc: torch.Tensor, sizes: _Sizes) -> tuple[torch.Tensor, ...]:
    """Inputs (batch, length, heads, head size), B and C (batch, length, groups, states): views."""
    states = (xbc.shape[-1] - sizes.width) // 2
    x, b, c = xbc.split([sizes.width, states, states], dim=-1)  # type: ignore[no-untyped-call]
    return _heads(x, sizes.num_heads), _heads(b, sizes.groups), _heads(c, sizes.groups)


def _heads(features: torch.Tensor, num_heads: int) -> torch.Tensor:
    return features.unflatten(-1, (num_heads, -1))  # type: ignore[no-any-return, no-untyped-call]


def mamba_split_conv1d_scan_combined(  # noqa: D103 - mamba_ssm's own
    zxbcdt: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: torch.Tensor | None,
    dt_bias: torch.Tensor,
    A: torch.Tensor,  # noqa: N803
    D: torch.Tensor,  # noqa: N803
    chunk_size: int,
    initial_states: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,  # noqa: ARG001 - tells packed sequences apart, at no cost
    dt_limit: tuple[float, float] = (0.0, float("inf")),  # noqa: ARG001 - within the kernels
    return_final_states: bool = False,
    activation: str = "silu",  # noqa: ARG001
    rmsnorm_weight: torch.Tensor | None = None,
    rmsnorm_eps: float = 1e-6,  # noqa: ARG001
    outproj_weight: torch.Tensor | None = None,
    outproj_bias: torch.Tensor | None = None,
    headdim: int | None = None,
    ngroups: int = 1,
    norm_before_gate: bool = True,  # noqa: ARG001
) -> torch.Tensor:
    head_size = D.shape[1] if D.dim() == 2 else headdim
    if head_size is None or initial_states is not None or return_final_states:
        raise NotImplementedError(
            "mamba_split_conv1d_scan_combined is planned for training: with headdim, without states given or returned"
        )
    sizes = _Sizes(chunk_size, D.shape[0], head_size, ngroups)
    if zxbcdt.shape[-1] != sizes.width + conv1d_weight.shape[0] + sizes.num_heads:
        raise NotImplementedError(
            "mamba_split_conv1d_scan_combined with an MLP beside the scan (d_nonssm) is not known"
        )
    return _Mamba2Inner.apply(  # type: ignore[no-any-return, no-untyped-call]
        sizes, zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, rmsnorm_weight, outproj_weight, outproj_bias
    )


ENTRIES = entries(("mamba_ssm.ops.triton.ssd_combined",), mamba_split_conv1d_scan_combined)
