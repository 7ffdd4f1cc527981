"""Recurrent layers: every token meets every weight matrix once, 2 x tokens x elements.

Gates (sums, products and functions of each element) are not counted. Cells (`nn.LSTMCell`) do their products by
`addmm`, and their fused operators the gates alone.
"""

from __future__ import annotations

from typing import Any

from planner.trace.flop_formulas.call import Call, Formula


def _tokens(inputs: Any) -> int:
    """(length, batch, size), (batch, length, size), or packed (tokens, size)."""
    return int(inputs.numel() // inputs.shape[-1])


def _matrices(weights: Any) -> int:
    """Biases are vectors; a weight of a projection is a matrix as well."""
    return sum(int(weight.numel()) for weight in weights if weight.dim() > 1)


def _layers(call: Call) -> int:
    return 2 * _tokens(call["input"]) * _matrices(call["weight"])


def _layers_backward(call: Call) -> int:
    """The gradient of the input always, that of the weights when asked for.

    Source: torch 2.13, aten/src/ATen/native/cudnn/RNN.cpp, _cudnn_rnn_backward.
    """
    return _layers(call) * (1 + bool(call["output_mask"][3]))


def _named(*weights: str, num_passes: int = 1) -> Formula:
    """OneDNN's operator is one layer in one direction."""
    return lambda call: num_passes * 2 * _tokens(call["input"]) * _matrices(call[weight] for weight in weights)


def _mps(num_passes: int) -> Formula:
    return lambda call: num_passes * 2 * _tokens(call["input"]) * _matrices(call["params"])


RECURRENCES: dict[str, Formula] = {
    "aten::_cudnn_rnn": _layers,
    "aten::_cudnn_rnn_backward": _layers_backward,
    "aten::miopen_rnn": _layers,
    "aten::miopen_rnn_backward": _layers_backward,
    "aten::mkldnn_rnn_layer": _named("weight0", "weight1"),
    "aten::mkldnn_rnn_layer_backward": _named("weight1", "weight2", num_passes=2),
    "aten::_lstm_mps": _mps(1),
    "aten::lstm_mps_backward": _mps(2),
}
