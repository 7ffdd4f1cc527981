"""The gated delta rule in chunks (Gated DeltaNet, Qwen3-Next): what flash-linear-attention runs for linear attention.

Source: flash-linear-attention 0.5.2, fla/ops/gated_delta_rule/chunk.py, chunk_fwd.py and wy_fast.py,
fla/ops/common/chunk_delta_h.py and chunk_o.py, fla/modules/l2norm.py. Operations are the products of each kernel, 2 for
a multiplication and its addition; forward's inverse of a triangle of one chunk is left out.

Shapes: queries and keys (batch, length, key heads, K), values (batch, length, heads, V), chunks of C positions.
"""

from __future__ import annotations

from typing import Any

import torch

from planner.trace.operators.entry import entries
from planner.trace.operators.kernel import kernel

PACKAGE = "flash-linear-attention 0.5.2"


@kernel("l2_norm(Tensor x) -> Tensor[]", PACKAGE)
def _l2_norm(x: torch.Tensor) -> list[torch.Tensor]:
    """Normalized rows, and their scales in fp32."""
    return [torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)]


@kernel("l2_norm_backward(Tensor normal, Tensor scales, Tensor gradient) -> Tensor", PACKAGE)
def _l2_norm_backward(normal: torch.Tensor, scales: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    return torch.empty_like(normal)


@kernel("delta_rule_cumsum(Tensor gate) -> Tensor", PACKAGE)
def _cumsum(gate: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(gate, dtype=torch.float32)


def _intra_flop(key: Any, value: Any, beta: Any, gate: Any, chunk: int) -> int:  # noqa: ARG001 - by the schema
    return 2 * chunk * beta.numel() * (2 * key.shape[-1] + value.shape[-1])  # type: ignore[no-any-return]


@kernel(
    "delta_rule_within_chunks(Tensor key, Tensor value, Tensor beta, Tensor gate, int chunk) -> Tensor[]",
    PACKAGE,
    _intra_flop,
)
def _within_chunks(
    key: torch.Tensor, value: torch.Tensor, beta: torch.Tensor, gate: torch.Tensor, chunk: int
) -> list[torch.Tensor]:
    """The triangle's inverse (batch, length, heads, C), and what it makes of keys and values."""
    del gate
    inverse = key.new_empty(*beta.shape, chunk)
    return [inverse, key.new_empty(*beta.shape, key.shape[-1]), torch.empty_like(value)]


def _states_flop(key: Any, value: Any, *_: Any) -> int:
    return 4 * value.numel() * key.shape[-1]  # type: ignore[no-any-return]


@kernel("delta_rule_states(Tensor key, Tensor value, int chunk, bool last) -> Tensor[]", PACKAGE, _states_flop)
def _states(key: torch.Tensor, value: torch.Tensor, chunk: int, last: bool) -> list[torch.Tensor]:
    """States that enter each chunk, values less what the states hold of them, last state where it is wanted."""
    batch, length, num_heads, width = value.shape
    shape = (num_heads, key.shape[-1], width)
    ends = [key.new_empty(batch, *shape, dtype=torch.float32)] if last else []
    return [key.new_empty(batch, -(-length // chunk), *shape), torch.empty_like(value), *ends]


def _output_flop(query: Any, key: Any, value: Any, states: Any, chunk: int) -> int:  # noqa: ARG001
    key_size, width = query.shape[-1], value.shape[-1]
    return 2 * (value.numel() // width) * (key_size * width + chunk * (key_size + width))  # type: ignore[no-any-return]


@kernel(
    "delta_rule_output(Tensor query, Tensor key, Tensor value, Tensor states, int chunk) -> Tensor",
    PACKAGE,
    _output_flop,
)
def _output(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> torch.Tensor:  # noqa: ARG001
    return torch.empty_like(value)


def _backward_flop(gradient: Any, query: Any, key: Any, value: Any, beta: Any, chunk: int) -> int:  # noqa: ARG001
    """Keys and values in the chunks again (w, u), states again and theirs, and the gradients by each of them."""
    key_size, width = query.shape[-1], value.shape[-1]
    of_chunk = chunk * (16 * key_size + 10 * width + 4 * chunk)
    return beta.numel() * (of_chunk + 16 * key_size * width)  # type: ignore[no-any-return]


@kernel(
    "delta_rule_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor beta, int chunk) -> Tensor[]",
    PACKAGE,
    _backward_flop,
)
def _backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    beta: torch.Tensor,
    chunk: int,
) -> list[torch.Tensor]:
    """Gradients of query, key, value, beta and gate; then what lies beside them when the last of them is computed."""
    batch, length, num_heads, width = value.shape
    keys = [key.new_empty(*beta.shape, key.shape[-1]) for _ in range(3)]
    values = [torch.empty_like(value) for _ in range(3)]
    states = [key.new_empty(batch, -(-length // chunk), num_heads, key.shape[-1], width) for _ in range(2)]
    gates = [torch.empty_like(beta, dtype=torch.float32) for _ in range(2)]
    made = [torch.empty_like(one) for one in (query, key, gradient, beta)]
    return [*made, gates[0], gates[1], *keys, *values, *states]


class _GatedDeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        gate: torch.Tensor,
        beta: torch.Tensor,
        chunk: int,
        wants_last: bool,
        is_normed: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        query, key, value, gate, beta = (one.contiguous() for one in (query, key, value, gate, beta))
        ctx.chunk, ctx.is_normed, ctx.gate_dtype = chunk, is_normed, gate.dtype
        scales = []
        if is_normed:
            (query, first), (key, second) = _l2_norm(query), _l2_norm(key)
            scales = [first, second]
        gate = _cumsum(gate)
        inverse, keys, values = _within_chunks(key, value, beta, gate, chunk)
        states, rest, *last = _states(keys, values, chunk, wants_last)
        output = _output(query, key, rest, states, chunk)
        ctx.save_for_backward(query, key, value, gate, beta, inverse, *scales)
        for one in last:
            ctx.mark_non_differentiable(one)
        return output.to(query.dtype), last[0] if last else None

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        query, key, value, _, beta, _, *scales = ctx.saved_tensors
        made = _backward(gradient.contiguous(), query, key, value, beta, ctx.chunk)
        d_query, d_key, d_value, d_beta, d_gate = made[:5]
        del made
        d_gate = _cumsum(d_gate)
        if ctx.is_normed:
            d_query = _l2_norm_backward(query, scales[0], d_query)
            d_key = _l2_norm_backward(key, scales[1], d_key)
        return d_query, d_key, d_value, d_gate.to(ctx.gate_dtype), d_beta.to(beta.dtype), None, None, None


def chunk_gated_delta_rule(  # noqa: D103 - flash-linear-attention's own
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    scale: float | None = None,  # noqa: ARG001 - changes no cost
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: torch.Tensor | None = None,  # noqa: ARG001 - tells packed sequences apart
    chunk_size: int = 64,
    **unknown: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if initial_state is not None or any(unknown.values()):
        raise NotImplementedError(
            "chunk_gated_delta_rule is planned for training without an initial state, with gates computed before it "
            f"(got {', '.join(name for name, value in unknown.items() if value) or 'initial_state'})"
        )
    return _GatedDeltaRule.apply(  # type: ignore[no-any-return, no-untyped-call]
        q, k, v, g, beta, chunk_size, output_final_state, use_qk_l2norm_in_kernel
    )


ENTRIES = entries(("fla.ops.gated_delta_rule", "fla.ops"), chunk_gated_delta_rule)
