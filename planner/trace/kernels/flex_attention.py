"""Flexible attention as its compiled kernel runs it: one operator, which keeps its operands, output and statistics.

Source: torch 2.13, torch/_higher_order_ops/flex_attention.py, FlexAttentionAutogradOp, and
torch/_inductor/kernel/flex/flex_attention.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.attention import flex_attention as flex

from planner.trace.flop_formulas import FORMULAS

FLEX_NOTE = (
    "flex_attention is taken to be compiled (torch.compile): in the open it would hold all scores; pairs that its mask "
    "leaves out are counted as operations"
)

_LIBRARY: Any = torch.library.Library("shardplan_flex", "DEF")  # type: ignore[no-untyped-call]


def _operator(schema: str, shapes: Callable[..., Any]) -> Any:
    _LIBRARY.define(schema)
    name = schema.partition("(")[0]
    torch.library.register_fake(f"shardplan_flex::{name}", shapes, lib=_LIBRARY)
    return getattr(torch.ops.shardplan_flex, name)


def _forward_shapes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output, laid out as the query, and one number in fp32 for each of its rows."""
    del key
    output = torch.empty_like(query)
    if value.shape[-1] != query.shape[-1]:
        output = query.new_empty(*query.shape[:-1], value.shape[-1])
    return output, query.new_empty(query.shape[:-1], dtype=torch.float32)


def _backward_shapes(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *kept: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    del gradient, kept
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


_FORWARD = _operator("flex_attention(Tensor query, Tensor key, Tensor value) -> (Tensor, Tensor)", _forward_shapes)
_BACKWARD = _operator(
    "flex_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor sums) "
    "-> (Tensor, Tensor, Tensor)",
    _backward_shapes,
)
FORMULAS.update({f"shardplan_flex::{name}": FORMULAS[name] for name in ("flex_attention", "flex_attention_backward")})


class _Flex(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, sums = _FORWARD(query, key, value)
        ctx.save_for_backward(query, key, value, output, sums)
        ctx.mark_non_differentiable(sums)
        return output, sums

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return _BACKWARD(gradient, *ctx.saved_tensors)  # type: ignore[no-any-return]


@contextmanager
def fused_flex_attention(notes: list[str]) -> Iterator[None]:
    """While on, flexible attention is that operator, whatever it does to scores and masks."""

    def attended(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> Any:
        if FLEX_NOTE not in notes:
            notes.append(FLEX_NOTE)
        output, sums = _Flex.apply(query, key, value)  # type: ignore[no-untyped-call]
        return output, sums, sums

    with ExitStack() as stack:
        stack.enter_context(patch.object(flex, "flex_attention_hop", attended))
        stack.enter_context(patch.object(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True))
        # It refuses gradients on a CPU.
        stack.enter_context(patch.object(flex, "_validate_device", lambda *_: None))
        yield
