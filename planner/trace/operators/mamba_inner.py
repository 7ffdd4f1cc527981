"""Mamba's whole inner layer as one autograd function: convolution, projections, scan and output projection.

It keeps its input and the small tensors between, and computes the convolution and the steps again in backward.

Source: mamba_ssm 2.3.2, mamba_ssm/ops/selective_scan_interface.py, MambaInnerFn with checkpoint_lvl 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

from planner.trace.operators.causal_convolution import convolution, convolution_backward
from planner.trace.operators.entry import entries
from planner.trace.operators.kernel import kernel
from planner.trace.operators.selective_scan import PACKAGE, scan, scan_backward


@kernel("mamba_rms_norm(Tensor rows, Tensor weight) -> Tensor[]", PACKAGE)
def _rms_norm(rows: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:  # noqa: ARG001 - by the schema
    """Normalized rows, and their scales in fp32."""
    return [torch.empty_like(rows), rows.new_empty(rows.shape[0], dtype=torch.float32)]


class _MambaInner(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        xz: torch.Tensor,
        conv_weight: torch.Tensor,
        conv_bias: torch.Tensor | None,
        x_weight: torch.Tensor,
        delta_weight: torch.Tensor,
        out_weight: torch.Tensor,
        out_bias: torch.Tensor | None,
        a: torch.Tensor,
        d: torch.Tensor | None,
        delta_bias: torch.Tensor | None,
        *norms: torch.Tensor | None,
    ) -> torch.Tensor:
        ctx.norms = norms
        ctx.bias_dtype = None if out_bias is None else out_bias.dtype
        if torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cuda" if torch.is_autocast_enabled("cuda") else "cpu")
            x_weight, delta_weight, out_weight = (one.to(dtype) for one in (x_weight, delta_weight, out_weight))
            out_bias = None if out_bias is None else out_bias.to(dtype)
        if xz.stride(-1) != 1:
            xz = xz.contiguous()
        conv_weight = conv_weight.squeeze(1)
        x, z = xz.chunk(2, dim=1)
        convolved = convolution(x, conv_weight, conv_bias)
        projected = linear(convolved.transpose(1, 2).flatten(0, 1), x_weight)
        delta = _steps(projected, delta_weight, xz.shape[0])
        rank, num_states = delta_weight.shape[1], a.shape[-1]
        b = _per_state(projected[:, rank : rank + num_states], xz.shape[0])
        c = _per_state(projected[:, -num_states:], xz.shape[0])
        b, c, delta = _normalized(b, c, delta, norms)
        output, states, gated = scan(convolved, delta, a, b, c, d, z, delta_bias)
        ctx.save_for_backward(
            xz,
            conv_weight,
            conv_bias,
            projected,
            x_weight,
            delta_weight,
            out_weight,
            a,
            b,
            c,
            d,
            delta_bias,
            states,
            output,
        )
        return linear(gated.transpose(1, 2), out_weight, None if out_bias is None else out_bias.to(gated.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        xz, conv_weight, conv_bias, projected, x_weight, delta_weight, out_weight, *rest = ctx.saved_tensors
        a, b, c, d, delta_bias, states, output = rest
        batch, rank, num_states = xz.shape[0], delta_weight.shape[1], a.shape[-1]
        x, z = xz.chunk(2, dim=1)
        convolved = convolution(x, conv_weight, conv_bias)
        b, c, delta = _normalized(b, c, _steps(projected, delta_weight, batch), ctx.norms)
        d_xz = torch.empty_like(xz)
        d_x, d_z = d_xz.chunk(2, dim=1)
        flat = gradient.flatten(0, 1).t()  # (features, batch x length)
        d_gated = _per_channel(out_weight.t() @ flat, batch)
        made = scan_backward(d_gated, convolved, delta, a, b, c, d, z, delta_bias, states, output, d_z, True)
        d_convolved, d_delta, d_a, d_b, d_c, *others, gated = made
        del made
        d_b, d_c = d_b.to(b.dtype), d_c.to(c.dtype)
        d_out_weight = flat @ gated.transpose(1, 2).flatten(0, 1)
        d_out_bias = None if ctx.bias_dtype is None else flat.sum(1).to(ctx.bias_dtype)
        d_projected = torch.empty_like(projected)
        d_projected[:, rank : rank + num_states] = _per_token(d_b)
        d_projected[:, -num_states:] = _per_token(d_c)
        steps = d_delta.transpose(0, 1).flatten(1)
        d_delta_weight = steps @ projected[:, :rank]
        d_projected[:, :rank] = steps.t() @ delta_weight
        d_x_weight = d_projected.t() @ convolved.transpose(1, 2).flatten(0, 1)
        channels = d_convolved.transpose(0, 1).flatten(1)
        channels = torch.addmm(channels, x_weight.t(), d_projected.t())
        d_convolved = _per_channel(channels, batch)
        _, d_conv_weight, d_conv_bias = convolution_backward(x, conv_weight, conv_bias, d_convolved, d_x)
        remaining = iter(others)
        d_d, d_delta_bias = (None if one is None else next(remaining) for one in (d, delta_bias))
        return (
            d_xz, d_conv_weight.unsqueeze(1), d_conv_bias, d_x_weight, d_delta_weight, d_out_weight, d_out_bias,
            d_a, d_d, d_delta_bias, *(None for _ in ctx.norms),
        )  # fmt: skip


def _steps(projected: torch.Tensor, delta_weight: torch.Tensor, batch: int) -> torch.Tensor:
    return _per_channel(delta_weight @ projected[:, : delta_weight.shape[1]].t(), batch)


def _normalized(
    b: torch.Tensor, c: torch.Tensor, delta: torch.Tensor, norms: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """FalconMamba's norms of B, C and the steps; the function has no gradients for their weights."""
    b_weight, c_weight, delta_weight = norms
    if b_weight is not None:
        b = _rows_normalized(b.squeeze(1), b_weight).unsqueeze(1)
    if c_weight is not None:
        c = _rows_normalized(c.squeeze(1), c_weight).unsqueeze(1)
    if delta_weight is not None:
        delta = _rows_normalized(delta, delta_weight)
    return b, c, delta


def _rows_normalized(channels: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(batch, channels, length), normalized over the channels."""
    rows, _ = _rms_norm(channels.transpose(1, 2).flatten(0, 1).contiguous(), weight)
    return rows.view(channels.shape[0], -1, channels.shape[1]).transpose(1, 2).contiguous()  # type: ignore[no-any-return]


def _per_channel(flat: torch.Tensor, batch: int) -> torch.Tensor:
    """(channels, batch x length) to (batch, channels, length), a view."""
    return flat.view(flat.shape[0], batch, -1).transpose(0, 1)


def _per_state(tokens: torch.Tensor, batch: int) -> torch.Tensor:
    """(batch x length, states) to (batch, 1, states, length), contiguous."""
    return tokens.reshape(batch, -1, tokens.shape[1]).transpose(1, 2).unsqueeze(1).contiguous()


def _per_token(states: torch.Tensor) -> torch.Tensor:
    """(batch, 1, states, length) to (batch x length, states), contiguous."""
    return states.squeeze(1).transpose(1, 2).flatten(0, 1).contiguous()


def mamba_inner_fn(  # noqa: D103 - mamba_ssm's own
    xz: torch.Tensor,
    conv1d_weight: torch.Tensor,
    conv1d_bias: torch.Tensor | None,
    x_proj_weight: torch.Tensor,
    delta_proj_weight: torch.Tensor,
    out_proj_weight: torch.Tensor,
    out_proj_bias: torch.Tensor | None,
    A: torch.Tensor,  # noqa: N803
    B: torch.Tensor | None = None,  # noqa: N803
    C: torch.Tensor | None = None,  # noqa: N803
    D: torch.Tensor | None = None,  # noqa: N803
    delta_bias: torch.Tensor | None = None,
    B_proj_bias: torch.Tensor | None = None,  # noqa: N803
    C_proj_bias: torch.Tensor | None = None,  # noqa: N803
    delta_softplus: bool = True,  # noqa: ARG001 - within the kernel
    checkpoint_lvl: int = 1,
    b_rms_weight: torch.Tensor | None = None,
    c_rms_weight: torch.Tensor | None = None,
    dt_rms_weight: torch.Tensor | None = None,
    b_c_dt_rms_eps: float = 1e-6,  # noqa: ARG001
) -> torch.Tensor:
    if any(one is not None for one in (B, C, B_proj_bias, C_proj_bias)) or checkpoint_lvl != 1:
        raise NotImplementedError("mamba_inner_fn is planned for with its own B and C, and with checkpoint_lvl 1")
    weights = (conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight, out_proj_weight, out_proj_bias)
    norms = (b_rms_weight, c_rms_weight, dt_rms_weight)
    return _MambaInner.apply(xz, *weights, A, D, delta_bias, *norms)  # type: ignore[no-any-return, no-untyped-call]


ENTRIES = entries(("mamba_ssm.ops.selective_scan_interface", "mamba_ssm"), mamba_inner_fn)
