"""Mamba-2's scan in chunks: a linear recurrence as matrix products within chunks, and states passed between them.

Source: mamba_ssm 2.3.2, mamba_ssm/ops/triton/ssd_combined.py, ssd_chunk_scan.py, ssd_chunk_state.py, ssd_bmm.py,
ssd_state_passing.py. Operations are the products of each of its kernels, 2 for a multiplication and its addition. The
workspaces of backward are those alive together when it computes the gradient of C x B; that some are made once per
group of heads, as many as the GPU likes, is left out.
"""

from __future__ import annotations

from typing import Any

import torch

from planner.trace.operators.entry import entries
from planner.trace.operators.kernel import contiguous_rows, kernel
from planner.trace.operators.selective_scan import PACKAGE


@kernel("chunk_cumsum(Tensor steps, int chunk) -> Tensor[]", PACKAGE)
def _chunk_cumsum(steps: torch.Tensor, chunk: int) -> list[torch.Tensor]:
    """Decays summed up within each chunk, and the steps, both (batch, heads, chunks, chunk) in fp32."""
    batch, length, num_heads = steps.shape
    shape = (batch, num_heads, -(-length // chunk), chunk)
    return [steps.new_empty(shape, dtype=torch.float32) for _ in range(2)]


def _state_flop(x: Any, b: Any, *_: Any) -> int:
    return 2 * x.numel() * b.shape[-1]  # type: ignore[no-any-return]


@kernel("chunk_scan_states(Tensor x, Tensor b, Tensor sums) -> Tensor", PACKAGE, _state_flop)
def _chunk_states(x: torch.Tensor, b: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    """(batch, chunks, heads, head size, states) in fp32."""
    return x.new_empty(x.shape[0], sums.shape[2], *x.shape[2:], b.shape[-1], dtype=torch.float32)


@kernel("chunk_scan_passing(Tensor states, Tensor c) -> Tensor[]", PACKAGE)
def _passed(states: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
    """The states that enter each chunk, in the model's type, and those after the last."""
    return [torch.empty_like(states, dtype=c.dtype), torch.empty_like(states[:, 0])]


def _within_flop(c: Any, b: Any, chunk: int) -> int:  # noqa: ARG001 - by the schema
    return 2 * c.numel() * chunk  # type: ignore[no-any-return]


@kernel("chunk_scan_within(Tensor c, Tensor b, int chunk) -> Tensor", PACKAGE, _within_flop)
def _within(c: torch.Tensor, b: torch.Tensor, chunk: int) -> torch.Tensor:  # noqa: ARG001
    """C x B of each chunk: (batch, chunks, groups, chunk, chunk) in fp32."""
    batch, length, num_groups, _ = c.shape
    return c.new_empty(batch, -(-length // chunk), num_groups, chunk, chunk, dtype=torch.float32)


def _scan_flop(x: Any, c: Any, within: Any, *_: Any) -> int:
    return 2 * x.numel() * (within.shape[-1] + c.shape[-1])  # type: ignore[no-any-return]


@kernel("chunk_scan(Tensor x, Tensor c, Tensor within, Tensor states, Tensor? z) -> Tensor[]", PACKAGE, _scan_flop)
def _scan(
    x: torch.Tensor,
    c: torch.Tensor,  # noqa: ARG001 - by the schema
    within: torch.Tensor,  # noqa: ARG001
    states: torch.Tensor,  # noqa: ARG001
    z: torch.Tensor | None,
) -> list[torch.Tensor]:
    """Output, and the output before the gate where there is one."""
    return [x.new_empty(x.shape) for _ in range(1 if z is None else 2)]


def _backward_flop(gradient: Any, x: Any, b: Any, chunk: int, *_: Any) -> int:  # noqa: ARG001
    # C x B again and both its gradients; the states again, theirs, and those of x, B and C by them; within the
    # chunks the gradients of x, of C x B and of the decays.
    return 6 * b.numel() * chunk + x.numel() * (10 * b.shape[-1] + 6 * chunk)  # type: ignore[no-any-return]


@kernel(
    "chunk_scan_backward(Tensor gradient, Tensor x, Tensor b, int chunk, Tensor a, Tensor steps, Tensor? d, "
    "Tensor? z, Tensor? bias, Tensor(a!) d_x, Tensor(b!) d_b, Tensor(c!) d_c, Tensor(d!) d_steps) -> Tensor[]",
    PACKAGE,
    _backward_flop,
)
def _scan_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    b: torch.Tensor,
    chunk: int,
    a: torch.Tensor,
    steps: torch.Tensor,
    d: torch.Tensor | None,
    z: torch.Tensor | None,
    bias: torch.Tensor | None,
    *written: torch.Tensor,  # noqa: ARG001 - the gradients' places
) -> list[torch.Tensor]:
    """Gradients of a, and of d, z and bias where they are; then the workspaces."""
    batch, length, num_heads, head_size = x.shape
    num_chunks, num_groups, num_states = -(-length // chunk), b.shape[2], b.shape[3]
    wide = torch.float32
    made = [torch.empty_like(a, dtype=wide)]
    made += [torch.empty_like(one) for one in (d, z) if one is not None]
    made += [] if bias is None else [torch.empty_like(bias, dtype=wide)]
    made += [x.new_empty(batch, num_heads, num_chunks, chunk, dtype=wide) for _ in range(5)]
    made += [x.new_empty(batch, num_chunks, num_groups, chunk, chunk, dtype=wide) for _ in range(2)]
    made += [x.new_empty(batch, num_chunks, num_heads, head_size, num_states) for _ in range(2)]
    made += [b.new_empty(b.shape, dtype=wide) for _ in range(2)]
    return [*made, torch.empty_like(steps), *([] if z is None else [torch.empty_like(gradient)])]


def chunk_scan(
    x: torch.Tensor,
    steps: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    chunk: int,
    z: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs the kernels of forward.

    Returns:
        Output, output before the gate (the output itself without one), decays summed up, states after the last chunk.
    """
    sums, wide_steps = _chunk_cumsum(steps, chunk)
    states = _chunk_states(x, b, sums)
    states, last = _passed(states, c)
    within = _within(c, b, chunk)
    output, *before_gate = _scan(x, c, within, states, z)
    del wide_steps
    return output, before_gate[0] if before_gate else output, sums, last


def chunk_scan_backward(
    gradient: torch.Tensor,
    operands: tuple[torch.Tensor | None, ...],
    chunk: int,
    places: tuple[torch.Tensor, ...],
) -> list[torch.Tensor | None]:
    """Runs backward on (x, steps, a, b, d, z, bias); writes the gradients of x, b, c and steps to `places`.

    Returns:
        The gradients of a, d, z and bias, None for those that are None.
    """
    x, steps, a, b, d, z, bias = operands
    made = iter(_scan_backward(gradient, x, b, chunk, a, steps, d, z, bias, *places))
    return [None if one is None else next(made).to(one.dtype) for one in (a, d, z, bias)]


class _ChunkScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        steps: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        c: torch.Tensor,
        chunk: int,
        d: torch.Tensor | None,
        z: torch.Tensor | None,
        bias: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        b, c = contiguous_rows(b, c)
        ctx.chunk = chunk
        output, before_gate, sums, last = chunk_scan(x, steps, b, c, chunk, z)
        ctx.save_for_backward(before_gate, x, steps, sums, a, b, c, d, z, bias)
        ctx.mark_non_differentiable(last)
        return output, last

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        _, x, steps, _, a, b, c, d, z, bias = ctx.saved_tensors
        (gradient,) = contiguous_rows(gradient)
        places = tuple(torch.empty_like(one) for one in (x, b, c, steps))
        d_a, d_d, d_z, d_bias = chunk_scan_backward(gradient, (x, steps, a, b, d, z, bias), ctx.chunk, places)
        d_x, d_b, d_c, d_steps = places
        return d_x, d_steps, d_a, d_b, d_c, None, d_d, d_z, d_bias


def mamba_chunk_scan_combined(  # noqa: D103 - mamba_ssm's own
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,  # noqa: N803
    B: torch.Tensor,  # noqa: N803
    C: torch.Tensor,  # noqa: N803
    chunk_size: int,
    D: torch.Tensor | None = None,  # noqa: N803
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,  # noqa: ARG001 - tells packed sequences apart, at no cost
    cu_seqlens: torch.Tensor | None = None,  # noqa: ARG001
    dt_softplus: bool = False,  # noqa: ARG001 - within the kernels
    dt_limit: tuple[float, float] = (0.0, float("inf")),  # noqa: ARG001
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Any:
    if initial_states is not None or return_varlen_states:
        raise NotImplementedError(
            "mamba_chunk_scan_combined with states given is for inference: only training is planned"
        )
    output, last = _ChunkScan.apply(x, dt, A, B, C, chunk_size, D, z, dt_bias)  # type: ignore[no-untyped-call]
    return (output, last) if return_final_states else output


ENTRIES = entries(("mamba_ssm.ops.triton.ssd_combined",), mamba_chunk_scan_combined)
