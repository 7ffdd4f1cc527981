"""Mamba's selective scan: a linear recurrence with a state per channel, in one kernel.

Source: mamba_ssm 2.3.2, mamba_ssm/ops/selective_scan_interface.py and csrc/selective_scan/selective_scan.cpp.
Operations of the scan: 9 x batch x length x channels x states, as A. Gu counts them
(https://github.com/state-spaces/mamba/issues/110); backward runs the scan again, then a scan in reverse and the
products for the gradients, counted as three times that.
"""

from __future__ import annotations

from typing import Any

import torch

from planner.trace.operators.entry import entries
from planner.trace.operators.kernel import contiguous_rows, kernel

PACKAGE = "mamba_ssm 2.3.2"

CHUNK_LENGTH = 2048
"""The kernel keeps the state at the end of each chunk. Source: selective_scan.cpp, selective_scan_fwd, `n_chunks`."""


def _flop(u: Any, delta: Any, a: Any, *_: Any) -> int:  # noqa: ARG001 - by the schema
    return 9 * u.numel() * a.shape[1]  # type: ignore[no-any-return]


def _backward_flop(gradient: Any, u: Any, delta: Any, a: Any, *_: Any) -> int:  # noqa: ARG001
    return 3 * _flop(u, delta, a)


@kernel(
    "selective_scan(Tensor u, Tensor delta, Tensor a, Tensor b, Tensor c, Tensor? d, Tensor? z, Tensor? bias)"
    " -> Tensor[]",
    PACKAGE,
    _flop,
)
def scan(
    u: torch.Tensor,
    delta: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,  # noqa: ARG001 - by the schema
    c: torch.Tensor,  # noqa: ARG001
    d: torch.Tensor | None,  # noqa: ARG001
    z: torch.Tensor | None,
    bias: torch.Tensor | None,  # noqa: ARG001
) -> list[torch.Tensor]:
    """Output, states at the ends of the chunks, gated output where there is a gate."""
    num_chunks = -(-u.shape[-1] // CHUNK_LENGTH)
    states = a.new_empty(*u.shape[:2], num_chunks, 2 * a.shape[1])
    return [torch.empty_like(delta), states, *([] if z is None else [torch.empty_like(z)])]


@kernel(
    "selective_scan_backward(Tensor gradient, Tensor u, Tensor delta, Tensor a, Tensor b, Tensor c, Tensor? d, "
    "Tensor? z, Tensor? bias, Tensor states, Tensor? output, Tensor? d_z, bool again) -> Tensor[]",
    PACKAGE,
    _backward_flop,
)
def scan_backward(
    gradient: torch.Tensor,  # noqa: ARG001 - by the schema
    u: torch.Tensor,
    delta: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    d: torch.Tensor | None,
    z: torch.Tensor | None,
    bias: torch.Tensor | None,
    states: torch.Tensor,  # noqa: ARG001
    output: torch.Tensor | None,
    d_z: torch.Tensor | None,
    again: bool,
) -> list[torch.Tensor]:
    """Gradients in the operands' order (b's and c's in fp32; z's unless its place is given), then the gated output."""
    gradients = [torch.empty_like(one) for one in (u, delta, a)]
    gradients += [torch.empty_like(one, dtype=torch.float32) for one in (b, c)]
    gradients += [torch.empty_like(one) for one in (d, bias) if one is not None]
    if z is not None and d_z is None:
        gradients.append(torch.empty_like(z))
    return [*gradients, torch.empty_like(output)] if again and output is not None else gradients


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: torch.Tensor,
        delta: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        d: torch.Tensor | None,
        z: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        u, delta, b, c = contiguous_rows(u, delta, b, c)
        d = None if d is None else d.contiguous()
        z = None if z is None else contiguous_rows(z)[0]
        ctx.was_flat = b.dim() == 3, c.dim() == 3
        b, c = (one.unsqueeze(1) if one.dim() == 3 else one for one in (b, c))
        output, states, *gated = scan(u, delta, a, b, c, d, z, bias)
        ctx.save_for_backward(u, delta, a, b, c, d, z, bias, states, *([output] if gated else []))
        last = states[:, :, -1, 1::2]
        ctx.mark_non_differentiable(last)
        return (gated[0] if gated else output), last

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        u, delta, a, b, c, d, z, bias, states, *output = ctx.saved_tensors
        (gradient,) = contiguous_rows(gradient)
        made = scan_backward(
            gradient, u, delta, a, b, c, d, z, bias, states, output[0] if output else None, None, False
        )
        d_u, d_delta, d_a, d_b, d_c, *others = made
        del made
        d_b, d_c = d_b.to(b.dtype), d_c.to(c.dtype)
        d_b, d_c = (one.squeeze(1) if flat else one for one, flat in zip((d_b, d_c), ctx.was_flat, strict=True))
        rest = iter(others)
        d_d, d_bias, d_z = (None if one is None else next(rest) for one in (d, bias, z))
        return d_u, d_delta, d_a, d_b, d_c, d_d, d_z, d_bias


def selective_scan_fn(  # noqa: D103 - mamba_ssm's own
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,  # noqa: N803
    B: torch.Tensor,  # noqa: N803
    C: torch.Tensor,  # noqa: N803
    D: torch.Tensor | None = None,  # noqa: N803
    z: torch.Tensor | None = None,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,  # noqa: ARG001 - within the kernel
    return_last_state: bool = False,
) -> Any:
    output, last = _SelectiveScan.apply(u, delta, A, B, C, D, z, delta_bias)  # type: ignore[no-untyped-call]
    return (output, last) if return_last_state else output


ENTRIES = entries(("mamba_ssm.ops.selective_scan_interface", "mamba_ssm"), selective_scan_fn)
