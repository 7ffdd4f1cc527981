"""What decisions of papers are compared with: their models, changed machines, and figures with their errors."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from network_anchors import Anchor
from transformer_graph import Shape, transformer_graph

from costmodels.engine import Engine, Message
from costmodels.step import StepTime, step_time
from costmodels.strategy import Precision, StepShape, Strategy
from costmodels.workload import Workload
from hw_profiles.load import load
from hw_profiles.schema import HardwareProfile
from planner.machine import Machine
from planner.model_graph import ModelGraph, ModelSource

__all__ = ["Anchor", "changed", "changed_messages_time", "generic", "time_of", "traced"]


@dataclass(frozen=True)
class _Model:
    config: dict[str, Any]
    precision: Precision
    sequence_length: int


def _llama(num_layers: int, hidden: int, num_heads: int, ffn: int) -> _Model:
    return _Model(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": hidden,
            "intermediate_size": ffn,
            "num_attention_heads": num_heads,
            "num_hidden_layers": num_layers,
            "vocab_size": 32000,
            "max_position_embeddings": 4096,
        },
        "bf16",
        4096,
    )


_MODELS = {
    "llama-7b": _llama(32, 4096, 32, 11008),
    "llama-13b": _llama(40, 5120, 40, 13824),
    # The width of 6144 fits the published rates, see published.json.
    "llama-30b": _llama(60, 6144, 48, 16384),
    "18B": _Model(
        {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "n_embd": 6144,
            "n_layer": 40,
            "n_head": 32,
            "vocab_size": 50304,
            "n_positions": 512,
        },
        "fp16",
        512,
    ),
}

_SHAPES: dict[str, tuple[Shape, Precision]] = {
    "InternLM 7B": (Shape(32, 4096, 11008, 103168, 4096, sequence_length=2048), "bf16"),
    # GPT-NeoX-20B's; the paper says no more than "20B GPT".
    "20B": (Shape(44, 6144, 24576, 50432, 6144, gated=False, sequence_length=2048), "fp16"),
}


@cache
def traced(name: str) -> ModelGraph:
    """Returns a published model, traced from its Hugging Face configuration; takes seconds."""
    # torch takes seconds to import, and the models that are generic do not need it.
    from planner.trace import trace

    model = _MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(model.config))
        source = ModelSource(spec=str(path), kind="hf_config")
        return trace(source, precision=model.precision, device="cuda", sequence_length=model.sequence_length)


@cache
def generic(name: str) -> Workload:
    """Returns a model that its paper gives no more than the shape of."""
    shape, precision = _SHAPES[name]
    return transformer_graph(shape, precision=precision).workload


def changed(
    name: str,
    num_nodes: int,
    bytes_per_s: dict[int, float] | None = None,
    efficiency: float | None = None,
    **device: Any,
) -> HardwareProfile:
    """Returns a shipped machine with some of its figures changed.

    Args:
        name: of the machine.
        num_nodes: of the run.
        bytes_per_s: what enters a unit of a level, by the level's index.
        efficiency: of every operation between nodes.
        **device: figures of the device.
    """
    profile = load(name, num_nodes)
    levels = list(profile.levels)
    for index, rate in (bytes_per_s or {}).items():
        levels[index] = levels[index].model_copy(update={"unit_bytes_per_s": rate})
    if efficiency is not None:
        every = dict.fromkeys(levels[-1].efficiency, efficiency)
        levels[-1] = levels[-1].model_copy(update={"efficiency": every})
    changes = {"levels": tuple(levels), "device": profile.known_device.model_copy(update=device)}
    return profile.model_copy(update=changes)


def time_of(engine: Engine, workload: Workload, strategy: Strategy, shape: StepShape, machine: Machine) -> StepTime:
    """Returns the time of a step in which all blocks have one strategy."""
    messages = engine.traffic(workload, (strategy,) * workload.num_classes, shape)
    return changed_messages_time(messages, workload, strategy, shape, machine)


def changed_messages_time(
    messages: tuple[Message, ...], workload: Workload, strategy: Strategy, shape: StepShape, machine: Machine
) -> StepTime:
    """Returns the time of a step that sends these messages."""
    return step_time(workload, messages, (strategy,) * workload.num_classes, shape, machine.network, machine.speed)
