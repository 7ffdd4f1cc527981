"""Recurrent layers and cells: what they keep for backward, and the gradients of their weights."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from planner.trace.kernels.onednn_workspace import lstm_workspace_bytes

_NUMBERS_KEPT = {0: 2, 1: 2, 2: 5, 3: 6}
"""Per unit and token, by cuDNN's mode (plain, plain, LSTM, GRU)."""


def onednn_layer(call: dict[str, Any], result: Any) -> Any:
    """Its workspace has no bytes in the shape rule."""
    output, hidden, cell, workspace = result
    if not call["train"]:
        return result
    steps, batch, width = call["input"].shape
    num_bytes = lstm_workspace_bytes(steps, batch, width, call["hidden_size"], call["input"].element_size())
    return output, hidden, cell, torch.empty(num_bytes, dtype=torch.uint8, device=workspace.device)


def onednn_layer_backward(_: dict[str, Any], result: Any) -> Any:
    """The two biases have equal gradients, in two tensors."""
    source, weight, recurrent, bias, _, *states = result
    return (source, weight, recurrent, bias, torch.empty_like(bias), *states)


def cudnn_layers(call: dict[str, Any], result: Any) -> Any:
    """Time comes first in memory whatever the order of the axes, and the reserve has bytes.

    Source: torch 2.13, aten/src/ATen/native/cudnn/RNN.cpp, _cudnn_rnn.
    """
    output, hidden, cell, reserve, flat = result
    if call["batch_first"] and not call["batch_sizes"]:
        output = output.transpose(0, 1).contiguous().transpose(0, 1)
    if call["train"]:
        reserve = torch.empty(cudnn_reserve_bytes(call), dtype=torch.uint8, device=reserve.device)
    return output, hidden, cell, reserve, flat


def cudnn_reserve_bytes(call: dict[str, Any]) -> int:
    """Returns an estimate of what a recurrent layer of cuDNN keeps for backward; cuDNN does not publish it.

    Source: pytorch issue 2895 (2017, cuDNN on a P100): 4 layers of 320 units in fp32 with 25,000 tokens keep
    736,000,000 bytes as an LSTM and 864,000,000 as a GRU: 5 and 6 numbers per unit, layer and token, and 1 between
    layers. What a plain RNN keeps, and the dropout's mask of one byte per number, are assumed.
    """
    source, layers = call["input"], call["num_layers"]
    tokens = source.numel() // source.shape[-1]
    units = tokens * call["hidden_size"] * (2 if call["bidirectional"] else 1)
    between = units * (layers - 1)
    numbers = _NUMBERS_KEPT[call["mode"]] * units * layers + between
    return int(numbers * source.element_size() + (between if call["dropout"] else 0))


def cudnn_layers_backward(call: dict[str, Any]) -> Any:
    """The gradients of all weights are in one buffer. Source: torch 2.13, the same file, _cudnn_rnn_backward."""
    wants_input, wants_hidden, wants_cell, wants_weights = call["output_mask"]
    cell, weights = call["cx"], call["weight"]
    gradients: list[torch.Tensor | None] = [None] * len(weights)
    if wants_weights:
        flat = weights[0].new_empty(sum(weight.numel() for weight in weights))
        ends = list(itertools.accumulate(weight.numel() for weight in weights))
        begins = [0, *ends[:-1]]
        gradients = [flat[b:e].view(w.shape) for b, e, w in zip(begins, ends, weights, strict=True)]
    return (
        torch.empty_like(call["input"]) if wants_input else None,
        torch.empty_like(call["hx"]) if wants_hidden else None,
        torch.empty_like(cell) if wants_cell and cell is not None else None,
        gradients,
    )


def gru_cell(call: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Source: torch 2.13, aten/src/ATen/native/cuda/RNN.cu, _thnn_fused_gru_cell_cuda: 5 numbers per unit."""
    hidden = call["hx"]
    return torch.empty_like(hidden), hidden.new_empty(hidden.shape[0], 5 * hidden.shape[1])


def gru_cell_backward(call: dict[str, Any]) -> tuple[torch.Tensor | None, ...]:
    """Source: torch 2.13, the same file, _thnn_fused_gru_cell_backward_cuda."""
    gradient = call["grad_hy"]
    gates = [gradient.new_empty(gradient.shape[0], 3 * gradient.shape[1]) for _ in range(2)]
    biases = [gate.new_empty(gate.shape[1]) if call["has_bias"] else None for gate in gates]
    return (*gates, torch.empty_like(gradient), *biases)
