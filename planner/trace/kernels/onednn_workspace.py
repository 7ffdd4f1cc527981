"""What oneDNN keeps of a recurrent layer for its backward: one buffer of bytes, which no meta kernel knows."""

from __future__ import annotations

_PAGE_BYTES = 4096
_LINE_BYTES = 64


def lstm_workspace_bytes(num_steps: int, batch_size: int, input_size: int, hidden_size: int, element_bytes: int) -> int:
    """Returns the bytes of the workspace of one LSTM layer in one direction, in training.

    It holds, each from a new page on: gates, hidden states, states of the layer, cell states, and the gradients of the
    three. Rows of what goes into products are padded.

    Args:
        num_steps: Length of the sequences.
        batch_size: Number of sequences.
        input_size: Width of the input.
        hidden_size: Width of the state.
        element_bytes: Of the input, 4 or 2; gradients are kept in fp32.

    Source: oneDNN 3.12, src/cpu/rnn/rnn_utils.hpp, set_workspace_sizes and init_conf, and rnn_utils.cpp, set_offsets.
    """
    rows = num_steps * batch_size
    rows_of_states = 2 * (num_steps + 1) * batch_size
    widest = max(input_size, hidden_size)
    gates = rows * _padded(4 * hidden_size, element_bytes)
    hidden = rows * _padded(hidden_size, element_bytes)
    states = rows_of_states * _padded(widest, element_bytes)
    cells = rows_of_states * hidden_size * element_bytes
    gradients = rows_of_states * _padded(widest, 4)
    cell_gradients = rows_of_states * hidden_size * 4
    parts = (gates, hidden, states, cells, gradients, gradients, cell_gradients)
    return sum(-(-part // _PAGE_BYTES) * _PAGE_BYTES for part in parts)


def _padded(width: int, element_bytes: int) -> int:
    """Bytes of a row: whole cache lines, and not a multiple of 256 elements, whose addresses would collide."""
    per_line = _LINE_BYTES // element_bytes
    padded = -(-width // per_line) * per_line
    return (padded + per_line if padded % 256 == 0 else padded) * element_bytes
