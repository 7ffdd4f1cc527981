"""The published models by their shapes, and the published numbers with their tolerances."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from costmodels.workload import Amount, Block, Parameter, Phase, Segment, Workload


@cache
def published() -> dict[str, Any]:
    """Returns published.json, its numbers as the decimals that were printed."""
    text = Path(__file__).with_name("published.json").read_text()
    numbers: dict[str, Any] = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    return numbers


def one_block(num_params: int) -> Workload:
    """Returns a model of one block: forward and backward without work."""
    return _workload((num_params,), (0,), (0,))


def decoder(
    *, layers: int, hidden: int, vocab: int, mlp_width: int, num_tokens: int, causal: float = 1.0, tied: bool = False
) -> Workload:
    """Returns a decoder: embedding, layers, head; a sample is one sequence of `num_tokens`.

    Args:
        layers: number of layers.
        hidden: width of the model.
        vocab: entries of the embedding and the head.
        mlp_width: parameters of a layer's feed-forward part over `hidden` (8 x hidden for GPT-2).
        num_tokens: of a sequence.
        causal: part of the attention matrix that is computed.
        tied: the head uses the embedding's parameters.
    """
    layer_params = 4 * hidden * hidden + mlp_width * hidden
    layer_flop = 2 * layer_params * num_tokens + int(causal * 4 * num_tokens * num_tokens * hidden)
    sizes = (vocab * hidden, *[layer_params] * layers, 0 if tied else vocab * hidden)
    flop = (0, *[layer_flop] * layers, 2 * vocab * hidden * num_tokens)
    return _workload(sizes, (0, *[1] * layers, 2), flop)


def _workload(sizes: tuple[int, ...], classes: tuple[int, ...], flop: tuple[int, ...]) -> Workload:
    order = range(len(sizes))

    def segment(block: int, phase: Phase) -> Segment:
        work = flop[block] * (1 if phase == "forward" else 2)
        return Segment(block, phase, (), Amount(0, work), Amount(), 0)

    return Workload(
        tuple(Parameter(str(block), (sizes[block],)) for block in order),
        tuple(Block(str(block), classes[block], (block,), classes[block] == 1) for block in order),
        (*(segment(block, "forward") for block in order), *(segment(block, "backward") for block in reversed(order))),
    )
