"""What quantized gathers and reductions of the fsdp engine send, hold and convert.

Numbers are sent as 8 bits (parameters) or 4 (gradients) in blocks of 256 with one fp32 scale each, every parameter in
blocks of its own. So a run of x elements takes, padded to whole fp32 numbers,

    q_8(x) = 4 ceil(x/256) + x          q_4(x) = 4 ceil(x/256) + x/2          (0.508 and 0.258 of bf16)

bytes, and with the shards and slices of `costmodels.fsdp.sizes`, of which a parameter has rows of w elements:

    forward    all-gather   1 to p    p  sum of q_8(ceil(n/p) w)
    backward   all-gather   1 to s    s  sum of q_8(p/s ceil(n/p) w)
    backward   all-to-all   1 to h    o  sum of q_4(slice)                  h: ranks of g inside one node
    backward   all-to-all   h to g    o/h sum of q_4(slice)

The spread from o to p and the boundary's reductions are exact. What a reduction's quantization leaves out is held at
rest in 8 bits: the same rows with q_8. A rank converts what it sends and what it gets by elementwise kernels, whose
bytes run at the device's memory bandwidth.

Source: `runtime/fsdp/quantize.py`, `quantized_gather.py` and `quantized_reduction.py`; ZeRO++ (arXiv 2306.10209)
sections 3.1 and 3.3; LoCo (arXiv 2407.04480) section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from costmodels.engine import Message
from costmodels.fsdp.sizes import BlockSizes, Rows, slice_elements
from costmodels.strategy import StepShape, Strategy

Bits = Literal[4, 8]
_BLOCK, _SCALE_BYTES = 256, 4
"""Source: `runtime/fsdp/quantized_layout.py`, BLOCK and SCALE_BYTES."""

_QUANTIZED_8 = 29
"""Bytes read and written of each element beside its own: to fp32 4, its norm 4, divided 8, rounded 8, as a byte 5."""
_QUANTIZED_4_WITH_FEEDBACK = 87
"""The same in 4 bits, where what was left out is added and what is left out kept: `quantize`, kernel by kernel: to fp32
4, what was left out added 9, its norm 4, divided and rounded 16, what is left out 12, its norm 4, divided, rounded and
written 21, two elements put in a byte 17."""
_SUMMED_4 = 22
"""The same of each element that is summed: out of its byte 5, as fp32 5, times its scale 8, read for the sum 4."""


def why_not_quantized(strategy: Strategy, shape: StepShape) -> str | None:
    """Returns why what a strategy quantizes is not sent, or None where it is."""
    if strategy.quantized_weights and strategy.param_degree == 1:
        return "parameters of a param degree of 1 are not gathered: there is nothing to quantize (qwZ)"
    if strategy.quantized_gradients and strategy.grad_degree == 1:
        return "gradients of a grad degree of 1 are reduced at the boundary, which is exact: nothing to quantize (qgZ)"
    if strategy.quantized_gradients and shape.ranks_per_node is None:
        return "where a node's ranks end is not known, which reductions of int4 (qgZ) need"
    return None


@lru_cache(maxsize=16384)
def run_bytes(num_elements: int, bits: Bits) -> int:
    """Returns q(x): the bytes of one parameter's elements with their scales."""
    whole, rest = divmod(num_elements, _BLOCK)
    payload_bytes = whole * (_BLOCK * bits // 8) + -(-rest * bits // 8)
    return _SCALE_BYTES * (whole + (rest > 0)) + -(-payload_bytes // _SCALE_BYTES) * _SCALE_BYTES


@lru_cache(maxsize=16384)
def gathered_bytes(parameters: tuple[Rows, ...], param_degree: int, degree: int) -> int:
    """Returns the message of a gather over `degree` ranks, of parameters sharded over p in forward.

    Args:
        parameters: of a block, frozen ones too.
        param_degree: p.
        degree: p in forward, s in backward.
    """
    whole = (-(-each.num_rows // param_degree) * param_degree * each.row_elements for each in parameters)
    return degree * sum(run_bytes(elements // degree, 8) for elements in whole)


def quantized_gather(message: Message, sizes: BlockSizes, strategy: Strategy) -> Message:
    """Returns the gather that is sent in place of an exact one."""
    degree = message.degree_to
    elements = sizes.gathered_elements(strategy.param_degree)
    width_bytes = message.message_bytes // max(1, elements)
    converted_bytes = elements // degree * (width_bytes + _QUANTIZED_8) + elements * (1 + 3 * width_bytes)
    num_bytes = gathered_bytes(sizes.parameters, strategy.param_degree, degree)
    return Message("all_gather", 1, degree, num_bytes, message.count, message.cause, converted_bytes=converted_bytes)


def quantized_reduction(message: Message, sizes: BlockSizes, strategy: Strategy, shape: StepShape) -> Iterator[Message]:
    """Yields the hops that are sent in place of an exact reduction over g."""
    assert shape.ranks_per_node is not None, "see why_not_quantized"
    row_bytes = slice_run_bytes(sizes.parameters, strategy.param_degree, strategy.optim_degree, 4)
    row_elements = sizes.slice_elements(strategy.param_degree, strategy.optim_degree)
    width_bytes = message.message_bytes // max(1, strategy.optim_degree * row_elements)
    for low, high in hops(strategy.grad_degree, shape.ranks_per_node):
        rows = strategy.optim_degree // low
        elements = rows * row_elements
        converted_bytes = elements * (width_bytes + _QUANTIZED_4_WITH_FEEDBACK + _SUMMED_4)
        converted_bytes += elements * low // high * width_bytes
        num_bytes = rows * row_bytes
        yield Message("all_to_all", low, high, num_bytes, message.count, message.cause, converted_bytes=converted_bytes)


def hops(grad_degree: int, ranks_per_node: int) -> tuple[tuple[int, int], ...]:
    """Returns the degrees between which each hop runs: inside the node, and between nodes where g has several."""
    inside = math.gcd(grad_degree, ranks_per_node)
    return tuple((low, high) for low, high in ((1, inside), (inside, grad_degree)) if low < high)


def residual_bytes(sizes: BlockSizes, strategy: Strategy, shape: StepShape) -> int:
    """Returns what a block's error feedback holds at rest."""
    if not strategy.quantized_gradients or shape.ranks_per_node is None:
        return 0
    row_bytes = slice_run_bytes(sizes.parameters, strategy.param_degree, strategy.optim_degree, 8)
    return sum(strategy.optim_degree // low * row_bytes for low, _ in hops(strategy.grad_degree, shape.ranks_per_node))


def arriving_bytes(sizes: BlockSizes, strategy: Strategy) -> int:
    """Returns what a block holds beside its gathered parameters while its quantized gather is under way."""
    if not strategy.quantized_weights or strategy.param_degree == 1:
        return 0
    return gathered_bytes(sizes.parameters, strategy.param_degree, strategy.param_degree)


@lru_cache(maxsize=16384)
def slice_run_bytes(parameters: tuple[Rows, ...], param_degree: int, optim_degree: int, bits: Bits) -> int:
    """Returns the bytes of one of the o slices of a block, with its scales."""
    slices = (slice_elements((each,), param_degree, optim_degree) for each in parameters if each.trainable)
    return sum(run_bytes(elements, bits) for elements in slices)
