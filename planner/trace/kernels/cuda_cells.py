"""Recurrent layers step by step, as CUDA runs them where cuDNN does not: fused operators for the gates.

Source: torch 2.13, aten/src/ATen/native/RNN.cpp, LSTMCell, GRUCell, FullLayer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional

aten = torch.ops.aten


class Cells:
    """Layers run step by step; both directions of a layer see the whole output of the one before."""

    def __init__(
        self, kind: str, params: Sequence[torch.Tensor], has_biases: bool, bidirectional: bool, dropout: float
    ) -> None:
        self._is_lstm = kind == "lstm"
        self._params, self._has_biases = list(params), has_biases
        self._num_directions = 2 if bidirectional else 1
        self._dropout = dropout

    def run(self, steps: torch.Tensor, hx: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the output and the last states, (layers x directions, batch, size) each."""
        num_cells = hx[0].shape[0]
        per_cell = len(self._params) // num_cells
        last: list[list[torch.Tensor]] = []
        for place in range(0, num_cells, self._num_directions):
            outputs = []
            for index in range(place, place + self._num_directions):
                params = self._params[index * per_cell : (index + 1) * per_cell]
                output, states = self._direction(steps, [state[index] for state in hx], params, index - place == 1)
                outputs.append(output)
                last.append(states)
            steps = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
            if self._dropout and place + self._num_directions < num_cells:
                steps = functional.dropout(steps, self._dropout)
        return [steps, *(torch.stack([states[number] for states in last]) for number in range(len(hx)))]

    def _direction(
        self, steps: torch.Tensor, states: list[torch.Tensor], params: list[torch.Tensor], is_backward: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        biases = params[2:4] if self._has_biases else [None, None]
        projection = params[-1] if len(params) in (3, 5) else None
        outputs = []
        for step in _in_order(steps, is_backward):
            states = self._step(step, states, params[:2], biases)
            if projection is not None:
                states[0] = states[0].matmul(projection.t())
            outputs.append(states[0])
        return torch.stack(list(_in_order(outputs, is_backward))), states

    def _step(
        self, step: torch.Tensor, states: list[torch.Tensor], weights: list[torch.Tensor], biases: Sequence[Any]
    ) -> list[torch.Tensor]:
        if self._is_lstm:
            return list(lstm_cell(step, states, *weights, *biases))
        return [gru_cell(step, states[0], *weights, *biases)]


def _in_order(items: Any, is_backward: bool) -> Iterator[torch.Tensor]:
    items = items.unbind(0) if isinstance(items, torch.Tensor) else items
    return iter(reversed(items)) if is_backward else iter(items)


def lstm_cell(
    input: torch.Tensor,  # noqa: A002 - torch's name
    hx: Sequence[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both products, and one operator for the gates."""
    gates = input.matmul(w_ih.t()), hx[0].matmul(w_hh.t())
    hidden, cell, _ = aten._thnn_fused_lstm_cell(*gates, hx[1], b_ih, b_hh)
    return hidden, cell


def gru_cell(
    input: torch.Tensor,  # noqa: A002 - torch's name
    hx: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> torch.Tensor:
    """Both products, and one operator for the gates."""
    gates = input.matmul(w_ih.t()), hx.matmul(w_hh.t())
    return aten._thnn_fused_gru_cell(*gates, hx, b_ih, b_hh)[0]  # type: ignore[no-any-return]
