"""Traced transformers written by hand, at the sizes of published ones: planned from without torch."""

from __future__ import annotations

from dataclasses import dataclass

from hand_workload import recomputed, timeline

from costmodels.strategy import Precision
from costmodels.workload import Amount, Block, ModuleCall, Parameter, Phase, Segment, Workload
from planner.model_graph import ModelGraph, ModelSource


@dataclass(frozen=True)
class Shape:
    num_layers: int
    hidden: int
    ffn: int
    vocab: int
    kv: int
    """Width of keys and values."""
    gated: bool = True
    sequence_length: int = 1024

    def layer(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        hidden, ffn, kv = self.hidden, self.ffn, self.kv
        gate = (("mlp.gate", (ffn, hidden)),) if self.gated else ()
        return (
            ("norm_1", (hidden,)),
            ("attention.q", (hidden, hidden)),
            ("attention.k", (kv, hidden)),
            ("attention.v", (kv, hidden)),
            ("attention.o", (hidden, hidden)),
            ("norm_2", (hidden,)),
            *gate,
            ("mlp.up", (ffn, hidden)),
            ("mlp.down", (hidden, ffn)),
        )


GPT2_XL = Shape(48, 1600, 6400, 50257, 1600, gated=False)
LLAMA_70B = Shape(80, 8192, 28672, 32000, 1024, sequence_length=4096)
QWEN_72B = Shape(80, 8192, 24576, 152064, 8192, sequence_length=2048)
SMALL = Shape(4, 512, 2048, 8192, 512, gated=False, sequence_length=128)


def transformer_graph(shape: Shape, *, precision: Precision = "bf16", num_classes: int = 1) -> ModelGraph:
    """Returns embedding, layers (of `num_classes` alternating classes) and head; device is cuda."""
    parameters = [Parameter("embedding.weight", (shape.vocab, shape.hidden))]
    blocks = [Block("embedding", 0, (0,))]
    for layer in range(shape.num_layers):
        first = len(parameters)
        parameters += [Parameter(f"layers.{layer}.{name}.weight", size) for name, size in shape.layer()]
        blocks.append(
            Block(f"layers.{layer}", 1 + layer % num_classes, tuple(range(first, len(parameters))), recomputable=True)
        )
    parameters.append(Parameter("head.weight", (shape.vocab, shape.hidden)))
    blocks.append(Block("head", 1 + num_classes, (len(parameters) - 1,)))
    numbers = range(len(blocks))
    segments = [_segment(shape, parameters, blocks, number, "forward") for number in numbers]
    segments += [_segment(shape, parameters, blocks, number, "backward") for number in reversed(numbers)]
    return ModelGraph(
        name="Transformer",
        source=ModelSource(spec="/models/transformer.py:build", kind="file"),
        precision=precision,
        device="cuda",
        sequence_length=shape.sequence_length,
        traced_by="hand",
        workload=Workload(tuple(parameters), tuple(blocks), tuple(segments)),
    )


def _segment(shape: Shape, parameters: list[Parameter], blocks: list[Block], number: int, phase: Phase) -> Segment:
    block = blocks[number]
    tokens, hidden = shape.sequence_length, shape.hidden
    num_params = sum(parameters[index].num_elements for index in block.parameters)
    attention = 4 * tokens * tokens * hidden if block.recomputable else 0
    flop = (2 * num_params * tokens if number else 0) + attention
    saved = tokens * (
        10 * shape.vocab if number == len(blocks) - 1 else 34 * hidden if block.recomputable else 2 * hidden
    )
    kept = tokens * 2 * hidden if block.recomputable else saved
    times = 1 if phase == "forward" else 2
    forward_peak = Amount(0, saved + tokens * 4 * hidden)
    peak = forward_peak if phase == "forward" else Amount(0, tokens * 8 * hidden)
    net = Amount(0, saved if phase == "forward" else -saved)
    calls = [ModuleCall(block.name, ())]
    calls += [ModuleCall(parameters[index].name.removesuffix(".weight"), (index,), 2) for index in block.parameters]
    if not block.recomputable:
        calls = [ModuleCall(block.name, block.parameters, inputs_require_grad=number > 0)]
    if number == 0 and phase == "forward":
        calls.insert(0, ModuleCall("", (), 0, inputs_require_grad=False))
    if phase == "backward":
        calls.reverse()
    return Segment(
        block=number,
        phase=phase,
        calls=tuple(calls),
        flop=Amount(0, times * flop),
        io_bytes=Amount(0, times * saved),
        num_operators=times * (30 if block.recomputable else 4),
        timeline=timeline(peak, net),
        recomputed=recomputed(phase, peak, net, Amount(0, kept), forward_peak) if block.recomputable else None,
        product_io_bytes=Amount(2 * times * num_params, 0),
        gradients=tuple(reversed(block.parameters)) if phase == "backward" else (),
    )
