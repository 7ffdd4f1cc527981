"""Fused attention: forward two products of (query length x key length), backward five, of which one is done again.

A causal mask does not halve the count, as in torch; dropout and softmax are not counted. With grouped queries, keys and
values are read by several heads, and all heads of the query count.
Source: torch 2.13, torch/utils/flop_counter.py, sdpa_flop_count, sdpa_backward_flop_count. Unlike there, the operators
beneath `scaled_dot_product_attention` get their operands as (batch, length, heads, head size), which it takes for
(batch, heads, length, head size).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from planner.trace.flop_formulas.call import Call, Formula


class _Sizes(NamedTuple):
    num_heads: int
    """Of all samples together."""
    query_length: int
    key_length: int
    head_size: int
    value_size: int


def _forward_flop(sizes: _Sizes) -> int:
    products = sizes.num_heads * sizes.query_length * sizes.key_length
    return 2 * products * (sizes.head_size + sizes.value_size)


def _backward_flop(sizes: _Sizes) -> int:
    """The scores again; the gradients of probabilities and values; those of queries and keys."""
    products = sizes.num_heads * sizes.query_length * sizes.key_length
    return 2 * products * (3 * sizes.head_size + 2 * sizes.value_size)


def _heads_first(call: Call) -> list[_Sizes]:
    query, key, value = call["query"], call["key"], call["value"]
    batch, heads, length, size = query.shape
    return [_Sizes(batch * heads, length, key.shape[-2], size, value.shape[-1])]


def _length_first(call: Call) -> list[_Sizes]:
    """(batch, length, heads, size), or all sequences one after the other with their beginnings in `cum_seq`."""
    query, key, value = call["query"], call["key"], call["value"]
    heads, size, value_size = query.shape[-2], query.shape[-1], value.shape[-1]
    begins_q, begins_k = (_first(call, f"cum_seq_{end}", f"cu_seqlens_{end}") for end in "qk")
    if begins_q is None:
        return [_Sizes(query.shape[0] * heads, query.shape[1], key.shape[1], size, value_size)]
    longest = (_first(call, f"max_{end}", f"max_seqlen_{end}") for end in "qk")
    lengths = [_lengths(begins, longest) for begins, longest in zip((begins_q, begins_k), longest, strict=True)]
    return [_Sizes(heads, q, k, size, value_size) for q, k in zip(*lengths, strict=True)]


def _cudnn(call: Call) -> list[_Sizes]:
    """Heads first, also where sequences are packed (length, heads, size)."""
    return _heads_first(call) if call["query"].dim() == 4 else _length_first(call)


def _first(call: Call, *names: str) -> Any:
    return next((call[name] for name in names if call.get(name) is not None), None)


def _lengths(begins: Any, longest: int) -> list[int]:
    """Without values, as many sequences of the greatest length: a bound."""
    values = getattr(begins, "_shadow_value", None)
    if values is None and not hasattr(begins, "fake_mode") and begins.device.type != "meta":
        values = begins
    if values is None:
        return [longest] * (begins.shape[0] - 1)
    return [int(length) for length in values.diff().tolist()]


def _layer(call: Call) -> int:
    """A whole attention layer: its four products with square weights and the attention, (batch, length, width)."""
    query, key = call["query"], call["key"]
    batch, length, width = query.shape
    heads = call["num_head"]
    attention = _forward_flop(_Sizes(batch * heads, length, key.shape[1], width // heads, width // heads))
    return int(2 * query.numel() * (call["qkv_weight"].numel() + call["proj_weight"].numel()) // width + attention)


def _encoder_layer(call: Call) -> int:
    source = call["src"]
    batch, length, width = source.shape
    heads = call["num_heads"]
    weights = ("qkv_weight", "proj_weight", "ffn_weight_1", "ffn_weight_2")
    attention = _forward_flop(_Sizes(batch * heads, length, length, width // heads, width // heads))
    return int(2 * batch * length * sum(call[weight].numel() for weight in weights) + attention)


def _triton(call: Call) -> int:
    batch, heads, length, size = call["q"].shape
    return _forward_flop(_Sizes(batch * heads, length, call["k"].shape[-2], size, call["v"].shape[-1]))


def _forward(sizes: Any) -> Formula:
    return lambda call: sum(_forward_flop(one) for one in sizes(call))


def _backward(sizes: Any) -> Formula:
    return lambda call: sum(_backward_flop(one) for one in sizes(call))


_FUSED = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")

ATTENTION: dict[str, Formula] = {
    **{f"aten::_scaled_dot_product_{kernel}": _forward(_heads_first) for kernel in _FUSED},
    **{f"aten::_scaled_dot_product_{kernel}_backward": _backward(_heads_first) for kernel in _FUSED},
    "aten::_scaled_dot_product_fused_attention_overrideable": _forward(_heads_first),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _backward(_heads_first),
    "aten::_scaled_dot_product_attention_math": _forward(_heads_first),
    "aten::_scaled_dot_product_attention_math_for_mps": _forward(_heads_first),
    "aten::scaled_dot_product_attention": _forward(_heads_first),
    "aten::_flash_attention_forward": _forward(_length_first),
    "aten::_flash_attention_forward_no_dropout_inplace": _forward(_length_first),
    "aten::_flash_attention_backward": _backward(_length_first),
    "aten::_efficient_attention_forward": _forward(_length_first),
    "aten::_efficient_attention_backward": _backward(_length_first),
    "aten::_cudnn_attention_forward": _forward(_cudnn),
    "aten::_cudnn_attention_backward": _backward(_cudnn),
    "aten::_native_multi_head_attention": _layer,
    "aten::_triton_multi_head_attention": _layer,
    "aten::_triton_scaled_dot_attention": _triton,
    "aten::_transformer_encoder_layer_fwd": _encoder_layer,
    "flex_attention": _forward(_heads_first),
    "flex_attention_backward": _backward(_heads_first),
}
