"""Recurrent layers over packed sequences, step by step: torch's own loop reads the lengths from memory.

Sequences that have ended leave the state from the back; going backwards they come to it at the back.
Source: torch 2.13, aten/src/ATen/native/RNN.cpp, PackedLayer, ReversedPackedLayer, LSTMCell, GRUCell, SimpleCell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from planner.trace.kernels.packed_sequences import known_lengths

States = list[torch.Tensor]
"""The hidden state, and that of the cell where there is one; (batch, size) each."""

Cell = Callable[[torch.Tensor, States, "Weights"], States]
"""From a step's input and the states before it to those after it."""


class Weights:
    """Parameters of one layer in one direction."""

    def __init__(self, params: Sequence[torch.Tensor], has_biases: bool) -> None:
        self.w_ih, self.w_hh = params[:2]
        self.b_ih = params[2] if has_biases else None
        self.b_hh = params[3] if has_biases else None
        self.projection = params[-1] if len(params) in (3, 5) else None


def packed_kernels_of_cpu() -> dict[str, Callable[..., Any]]:
    """Returns what takes the place of the operators for packed sequences on a CPU, by name."""
    cells: dict[str, Cell] = {
        "lstm": _lstm,
        "gru": _gru,
        "rnn_tanh": lambda step, states, weights: [linear_hh(states, weights).add_(step).tanh()],
        "rnn_relu": lambda step, states, weights: [linear_hh(states, weights).add_(step).relu()],
    }
    return {f"{kind}.data": packed_layers(kind == "lstm", cell, True) for kind, cell in cells.items()}


def packed_layers(is_lstm: bool, cell: Cell, computes_inputs_first: bool) -> Callable[..., Any]:
    """Returns an operator like `aten.lstm.data`; on a CPU the products with all inputs come first, in one."""

    def layers(
        data: torch.Tensor,
        batch_sizes: torch.Tensor,
        hx: Any,
        params: Sequence[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[torch.Tensor, ...]:
        sizes = known_lengths(batch_sizes)
        num_directions = 2 if bidirectional else 1
        starts = [list(parts) for parts in zip(*(state.unbind(0) for state in (hx if is_lstm else [hx])), strict=True)]
        per_cell = len(params) // (num_layers * num_directions)
        last: list[States] = []
        for layer in range(num_layers):
            outputs = []
            for direction in range(num_directions):
                index = layer * num_directions + direction
                weights = Weights(params[index * per_cell : (index + 1) * per_cell], has_biases)
                inputs = functional.linear(data, weights.w_ih, weights.b_ih) if computes_inputs_first else data
                walk = _backwards if direction else _forwards
                output, states = walk(inputs, sizes, starts[index], cell, weights)
                outputs.append(output)
                last.append(states)
            data = torch.cat(outputs, -1) if bidirectional else outputs[0]
            if dropout and train and layer < num_layers - 1:
                data = torch.dropout(data, dropout, True)
        return (data, *(torch.stack([states[number] for states in last]) for number in range(len(last[0]))))

    return layers


def _forwards(
    inputs: torch.Tensor, sizes: list[int], states: States, cell: Cell, weights: Weights
) -> tuple[torch.Tensor, States]:
    outputs, ended, offset, last = [], [], 0, sizes[0]
    for size in sizes:
        step = inputs.narrow(0, offset, size)
        offset += size
        if size < last:
            ended.append([state.narrow(0, size, last - size) for state in states])
            states = [state.narrow(0, 0, size) for state in states]
        last = size
        states = cell(step, states, weights)
        outputs.append(states[0])
    return torch.cat(outputs, 0), _joined([states, *reversed(ended)])


def _backwards(
    inputs: torch.Tensor, sizes: list[int], starts: States, cell: Cell, weights: Weights
) -> tuple[torch.Tensor, States]:
    outputs, offset, last = [], inputs.shape[0], sizes[-1]
    states = [state.narrow(0, 0, last) for state in starts]
    for size in reversed(sizes):
        if size > last:
            states = _joined([states, [state.narrow(0, last, size - last) for state in starts]])
        step = inputs.narrow(0, offset - size, size)
        offset, last = offset - size, size
        states = cell(step, states, weights)
        outputs.append(states[0])
    return torch.cat(outputs[::-1], 0), states


def _joined(parts: list[States]) -> States:
    return [torch.cat(list(states), 0) for states in zip(*parts, strict=True)]


def linear_hh(states: States, weights: Weights) -> torch.Tensor:
    """Returns the product of the hidden state."""
    return functional.linear(states[0], weights.w_hh, weights.b_hh)


def _lstm(step: torch.Tensor, states: States, weights: Weights) -> States:
    gates = linear_hh(states, weights).add_(step)
    into, forget, new, out = gates.unsafe_chunk(4, 1)
    into, forget, new, out = into.sigmoid_(), forget.sigmoid_(), new.tanh_(), out.sigmoid_()
    cell = (forget * states[1]).add_(into * new)
    hidden = out * cell.tanh()
    return [hidden if weights.projection is None else hidden.matmul(weights.projection.t()), cell]


def _gru(step: torch.Tensor, states: States, weights: Weights) -> States:
    of_input = step.unsafe_chunk(3, 1)
    of_state = linear_hh(states, weights).unsafe_chunk(3, 1)
    reset = of_state[0].add_(of_input[0]).sigmoid_()
    update = of_state[1].add_(of_input[1]).sigmoid_()
    new = of_input[2].add(of_state[2].mul_(reset)).tanh_()
    return [(states[0] - new).mul_(update).add_(new)]
