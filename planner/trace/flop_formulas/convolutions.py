"""Convolutions: each position of the output (of the input when transposed) meets the whole weight once.

A weight is (out channels, in channels / groups, *kernel), or (in, out / groups, *kernel) when transposed: in both cases
its number of elements is what one position costs, whatever the groups. Backward costs as much as forward for each of
the two gradients (of the input, of the weight) that are asked for. torch's own registry counts the gradient of the
weight `groups` times too high. Source: torch 2.13, torch/utils/flop_counter.py, conv_flop_count, conv_backward_flop.
"""

from __future__ import annotations

import math
from typing import Any

from planner.trace.flop_formulas.call import Call, Formula


def _flop(positions: Any, weight: Any) -> int:
    """`positions` has the shape (batch, channels, *space)."""
    return int(2 * positions.shape[0] * math.prod(positions.shape[2:]) * weight.numel())


def _forward(inputs: str, *, is_transposed: bool = False) -> Formula:
    def formula(call: Call) -> int:
        if call.get("transposed", is_transposed):
            return _flop(_batched(call[inputs], call["weight"]), call["weight"])
        return _flop(_batched(call["result"], call["weight"]), call["weight"])

    return formula


def _batched(tensor: Any, weight: Any) -> Any:
    """A single sample may come without its axis."""
    return tensor if tensor.dim() == weight.dim() else tensor.unsqueeze(0)


def _backward(inputs: str, *, is_transposed: bool = False) -> Formula:
    def formula(call: Call) -> int:
        positions = call[inputs] if call.get("transposed", is_transposed) else call["grad_output"]
        return _flop(positions, call["weight"]) * sum(bool(wanted) for wanted in call["output_mask"][:2])

    return formula


def _slow_backward(call: Call) -> int:
    """The overload that writes into given tensors has no mask: it makes all gradients."""
    return _flop(call["grad_output"], call["weight"]) * sum(bool(wanted) for wanted in call.get("output_mask", (1, 1)))


def _tbc(call: Call) -> int:
    """Input (time, batch, channels), weight (kernel, in, out)."""
    time, batch, _ = call["result"].shape
    return int(2 * time * batch * call["weight"].numel())


def _tbc_backward(call: Call) -> int:
    time, batch, _ = call["self"].shape
    return int(2 * 2 * time * batch * call["weight"].numel())


def _packed(inputs: str) -> Formula:
    """The weight is inside an object of torch's quantization."""

    def formula(call: Call) -> int:
        return _flop(call["result"], call[inputs].unpack()[0])

    return formula


CONVOLUTIONS: dict[str, Formula] = {
    "aten::convolution": _forward("input"),
    "aten::_convolution": _forward("input"),
    "aten::convolution_overrideable": _forward("input"),
    "aten::_convolution_mode": _forward("input"),
    **{f"aten::conv{axes}d": _forward("input") for axes in (1, 2, 3)},
    **{f"aten::conv_transpose{axes}d": _forward("input", is_transposed=True) for axes in (1, 2, 3)},
    "aten::mkldnn_convolution": _forward("self"),
    "aten::cudnn_convolution": _forward("self"),
    "aten::cudnn_convolution_relu": _forward("self"),
    "aten::cudnn_convolution_add_relu": _forward("self"),
    "aten::cudnn_convolution_transpose": _forward("self", is_transposed=True),
    "aten::miopen_convolution": _forward("self"),
    "aten::miopen_convolution_relu": _forward("self"),
    "aten::miopen_convolution_add_relu": _forward("self"),
    "aten::miopen_depthwise_convolution": _forward("self"),
    "aten::miopen_convolution_transpose": _forward("self", is_transposed=True),
    "aten::_mps_convolution": _forward("self"),
    "aten::_mps_convolution_transpose": _forward("self", is_transposed=True),
    "aten::_nnpack_spatial_convolution": _forward("input"),
    "aten::_slow_conv2d_forward": _forward("self"),
    "aten::slow_conv3d_forward": _forward("self"),
    "aten::slow_conv3d": _forward("self"),
    "aten::thnn_conv2d": _forward("self"),
    "aten::slow_conv_dilated2d": _forward("self"),
    "aten::slow_conv_dilated3d": _forward("self"),
    "aten::_conv_depthwise2d": _forward("self"),
    "aten::conv_depthwise3d": _forward("self"),
    "aten::slow_conv_transpose2d": _forward("self", is_transposed=True),
    "aten::slow_conv_transpose3d": _forward("self", is_transposed=True),
    "aten::convolution_backward": _backward("input"),
    "aten::convolution_backward_overrideable": _backward("input"),
    "aten::mps_convolution_backward": _backward("self"),
    "aten::mps_convolution_transpose_backward": _backward("self", is_transposed=True),
    "aten::_slow_conv2d_backward": _slow_backward,
    "aten::conv_tbc": _tbc,
    "aten::conv_tbc_backward": _tbc_backward,
    **{f"quantized::conv{axes}d": _packed("packed_weight") for axes in (1, 2, 3)},
    **{f"quantized::conv{axes}d_relu": _packed("packed_weight") for axes in (1, 2, 3)},
}
