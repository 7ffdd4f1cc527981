"""Floating-point operations of one operator, from the shapes of its operands.

torch's own registry answers for most; this adds what it lacks (CPU's flash attention, grouped matrix products) and
corrects the backward of grouped convolutions, which it counts `groups` times too high. A causal mask does not halve the
count, as in torch. Source: torch 2.13, torch/utils/flop_counter.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import conv_flop_count, flop_registry, sdpa_backward_flop_count, sdpa_flop_count

aten = torch.ops.aten

_SILENT_NAMES = ("mm", "conv", "attention", "rnn", "lstm", "gru", "linear")


def operator_flop(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int | None:
    """Returns the operations of one call of `func`, 0 for an elementwise one, None when a formula is missing."""
    packet = func._overloadpacket
    own = _OWN.get(packet)
    if own is not None:
        return own(args)
    registered = flop_registry.get(packet)
    if registered is not None:
        return int(registered(*args, **kwargs, out_val=result))
    name = packet.__name__
    return None if any(part in name for part in _SILENT_NAMES) and func.namespace != "prim" else 0


def _attention(args: tuple[Any, ...]) -> int:
    query, key, value = args[:3]
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


def _attention_backward(args: tuple[Any, ...]) -> int:
    gradient, query, key, value = args[:4]
    shapes = (gradient.shape, query.shape, key.shape, value.shape)
    return int(sdpa_backward_flop_count(*shapes))  # type: ignore[no-untyped-call]


def _grouped_product(args: tuple[Any, ...]) -> int:
    """2 m k n over all groups; a 2-D operand is split among the groups, a 3-D one has one matrix for each."""
    left, right = args[:2]
    if left.dim() == 2:
        return int(2 * left.shape[0] * left.shape[1] * right.shape[-1])
    num_products = left.shape[0] if right.dim() == 3 else 1
    return int(2 * left.shape[1] * left.shape[2] * right.shape[-1] * num_products)


def _convolution_backward(args: tuple[Any, ...]) -> int:
    """As many operations as forward for each of the two gradients (input, weight) that are asked for."""
    gradient, inputs, weight = args[:3]
    is_transposed, wanted = args[7], args[10]
    forward = conv_flop_count(list(inputs.shape), list(weight.shape), list(gradient.shape), transposed=is_transposed)
    return int(forward * sum(wanted[:2]))


def _recurrent_layer(args: tuple[Any, ...]) -> int:
    """2 x tokens x weight for both weights of the layer, that of its input and that of its state."""
    inputs, weight, recurrent = args[:3]
    num_tokens = inputs.shape[0] * inputs.shape[1]
    return int(2 * num_tokens * (weight.numel() + recurrent.numel()))


def _recurrent_layer_backward(args: tuple[Any, ...]) -> int:
    return 2 * _recurrent_layer(args)


_OWN: dict[Any, Callable[[tuple[Any, ...]], int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    aten._grouped_mm: _grouped_product,
    aten.convolution_backward: _convolution_backward,
    aten.mkldnn_rnn_layer: _recurrent_layer,
    aten.mkldnn_rnn_layer_backward: _recurrent_layer_backward,
}


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Returns the bytes that reading the whole tensor touches; an expanded axis is read once."""
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0]
    return math.prod(sizes) * tensor.element_size()
