"""The model of a question, without memory, for planners that read modules."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from peers_question import Question
from torch import nn


def empty_model(question: Question, num_layers: int | None = None) -> nn.Module:
    """Returns the model on torch's meta device; with fewer layers where `num_layers` is given."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**question.config)
    config.use_cache = False
    if num_layers is not None:
        config.num_hidden_layers = num_layers
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def num_saved_bytes(question: Question) -> int:
    """Returns the bytes of activations saved for backward at micro-batch 1, as Shardplan traces them for a GPU."""
    from costmodels.workload import Amount
    from planner.read.source import read_source
    from planner.trace import trace

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(question.config))
        source = read_source(folder, ())
        graph = trace(source, precision="bf16", device="cuda", sequence_length=question.sequence_length)
    forward = (segment for segment in graph.workload.segments if segment.phase == "forward")
    return int(sum((segment.net_bytes for segment in forward), Amount()).at(1))
