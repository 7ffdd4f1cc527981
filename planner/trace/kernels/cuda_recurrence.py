"""Recurrent layers as CUDA runs them: one operator of cuDNN for all layers, or fused cells step by step.

Source: torch 2.13, aten/src/ATen/native/RNN.cpp (the choice), aten/src/ATen/native/cudnn/RNN.cpp (the
operator), aten/src/ATen/cudnn/AutocastRNN.cpp (its casts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from planner.trace.kernels.cuda_cells import Cells, gru_cell, lstm_cell
from planner.trace.kernels.packed_layers import Cell, States, Weights, linear_hh, packed_layers
from planner.trace.kernels.packed_sequences import known_lengths

aten = torch.ops.aten

_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""Of cuDNN, cudnnRNNMode_t."""

_CUDNN_TYPES = (torch.float16, torch.float32, torch.float64)
"""Source: torch 2.13, torch/backends/cudnn/__init__.py, CUDNN_TENSOR_DTYPES."""

RESERVE_NOTE = (
    "cuDNN does not publish how many bytes a recurrent layer keeps for backward; estimated as 5 numbers per unit and "
    "token for an LSTM, 6 for a GRU, 2 for a plain RNN, and one more between layers, from sizes that were measured on "
    "one GPU with an older version (pytorch issue 2895)"
)


class RecurrentKernels:
    """Replacements for torch's recurrent operators; `notes` gets what is not known of them."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def by_name(self) -> dict[str, Callable[..., Any]]:
        """Returns the replacements by the operators' names."""
        layers = {f"{kind}.input": self._of_sequences(kind) for kind in _MODES}
        packed = {f"{kind}.data": self._of_packed(kind) for kind in _MODES}
        return {**layers, **packed, "lstm_cell": lstm_cell, "gru_cell": gru_cell}

    def _of_sequences(self, kind: str) -> Callable[..., Any]:
        def layer(
            input: torch.Tensor,  # noqa: A002 - torch's name
            hx: Any,
            params: Sequence[torch.Tensor],
            has_biases: bool,
            num_layers: int,
            dropout: float,
            train: bool,
            bidirectional: bool,
            batch_first: bool,
        ) -> Any:
            if self._takes_cudnn(input):
                settings = (num_layers, batch_first, dropout, train, bidirectional)
                return self._cudnn(kind, input, hx, params, has_biases, settings, [])
            if kind in ("rnn_relu", "rnn_tanh"):
                operator = getattr(aten, kind).input
                flags = (dropout, train, bidirectional, batch_first)
                return operator.decompose(input, hx, params, has_biases, num_layers, *flags)
            steps = input.transpose(0, 1) if batch_first else input
            cells = Cells(kind, params, has_biases, bidirectional, dropout if train else 0.0)
            output, *states = cells.run(steps, hx if kind == "lstm" else [hx])
            return (output.transpose(0, 1) if batch_first else output, *states)

        return layer

    def _of_packed(self, kind: str) -> Callable[..., Any]:
        step_by_step = packed_layers(kind == "lstm", _CELLS[kind], computes_inputs_first=False)

        def layer(
            data: torch.Tensor,
            batch_sizes: torch.Tensor,
            hx: Any,
            params: Sequence[torch.Tensor],
            has_biases: bool,
            num_layers: int,
            dropout: float,
            train: bool,
            bidirectional: bool,
        ) -> Any:
            if self._takes_cudnn(data):
                sizes = known_lengths(batch_sizes)
                settings = (num_layers, False, dropout, train, bidirectional)
                return self._cudnn(kind, data, hx, params, has_biases, settings, sizes)
            flags = (dropout, train, bidirectional)
            return step_by_step(data, batch_sizes, hx, params, has_biases, num_layers, *flags)

        return layer

    @staticmethod
    def _takes_cudnn(source: torch.Tensor) -> bool:
        return torch.backends.cudnn.enabled and source.dtype in _CUDNN_TYPES and source.numel() > 0

    def _cudnn(
        self,
        kind: str,
        source: torch.Tensor,
        hx: Any,
        params: Sequence[torch.Tensor],
        has_biases: bool,
        settings: tuple[int, bool, float, bool, bool],
        batch_sizes: list[int],
    ) -> Any:
        if RESERVE_NOTE not in self._notes:
            self._notes.append(RESERVE_NOTE)
        num_layers, batch_first, dropout, train, bidirectional = settings
        hidden, cell = hx if kind == "lstm" else (hx, None)
        state_size = cell.shape[-1] if cell is not None else hidden.shape[-1]
        projected = hidden.shape[-1] if hidden.shape[-1] != state_size else 0
        source, hidden, cell, weights, flat = _as_cast(source, hidden, cell, params)
        per_layer = (4 if has_biases else 2) + (1 if projected else 0)
        output, hidden, cell, _, _ = aten._cudnn_rnn(
            *(source, weights, per_layer, flat, hidden, cell, _MODES[kind], state_size, projected, num_layers),
            *(batch_first, dropout if train else 0.0, train, bidirectional, batch_sizes, None),
        )
        return (output, hidden, cell) if kind == "lstm" else (output, hidden)


def _fused_lstm(step: torch.Tensor, states: States, weights: Weights) -> States:
    hidden, cell = lstm_cell(step, states, weights.w_ih, weights.w_hh, weights.b_ih, weights.b_hh)
    return [hidden if weights.projection is None else hidden.matmul(weights.projection.t()), cell]


def _fused_gru(step: torch.Tensor, states: States, weights: Weights) -> States:
    return [gru_cell(step, states[0], weights.w_ih, weights.w_hh, weights.b_ih, weights.b_hh)]


def _plain(nonlinearity: Callable[[torch.Tensor], torch.Tensor]) -> Cell:
    def cell(step: torch.Tensor, states: States, weights: Weights) -> States:
        of_input = functional.linear(step, weights.w_ih, weights.b_ih)
        return [nonlinearity(linear_hh(states, weights).add_(of_input))]

    return cell


_CELLS: dict[str, Cell] = {
    "lstm": _fused_lstm,
    "gru": _fused_gru,
    "rnn_tanh": _plain(torch.tanh),
    "rnn_relu": _plain(torch.relu),
}
"""Of packed sequences that do not go to cuDNN."""


def _as_cast(
    source: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor | None, params: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, list[torch.Tensor], torch.Tensor]:
    """Returns the operands as autocast gives them: all weights cast into one buffer, which backward keeps.

    Without autocast the weights are the parameters, which stand one after the other in a buffer of their own.
    """
    if not torch.is_autocast_enabled("cpu") or params[0].dtype == torch.float64:
        return source, hidden, cell, list(params), params[0].detach()
    dtype = torch.get_autocast_dtype("cpu")
    source, hidden = source.to(dtype), hidden.to(dtype)
    cell = None if cell is None else cell.to(dtype)
    if params[0].dtype == dtype:
        return source, hidden, cell, list(params), params[0].detach()
    flat = torch.cat([param.to(dtype).flatten() for param in params])
    begin, weights = 0, []
    for param in params:
        weights.append(flat[begin : begin + param.numel()].view(param.shape))
        begin += param.numel()
    return source, hidden, cell, weights, flat.detach()
