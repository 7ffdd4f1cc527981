"""Peaks of one step on one rank, told by Shardplan's trace and by torch's, beside the tensors alive in a real one."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from peers_question import QUESTIONS, Question

MICRO_BATCH, SEQUENCE_LENGTH = 2, 256


@dataclass(frozen=True, slots=True)
class Peak:
    """One model: bytes at the peak of forward and backward, with gradients, without parameters."""

    name: str
    real_bytes: int
    shardplan_bytes: int
    sac_bytes: int | None
    """What torch's solver takes for the peak without recomputation; None: pulp or pwlf is not installed."""


def peaks_of() -> tuple[Peak, ...]:
    """Returns a row for GPT-2, and one for a small Llama: a real step of each, fp32, on this CPU."""
    llama = QUESTIONS["llama-7b"]
    narrow = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8}
    small = replace(llama, name="Llama, 58 M", config={**llama.config, **narrow, "num_key_value_heads": 8})
    return tuple(_peak(question) for question in (QUESTIONS["gpt2"], small))


def _peak(question: Question) -> Peak:
    from planner.read.source import read_source
    from planner.verify import verify

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(question.config))
        source = read_source(folder, ())
        found = verify(
            source, precision="fp32", sequence_length=SEQUENCE_LENGTH, micro_batch_size=MICRO_BATCH
        ).comparisons
    peak = next(each for each in found if each.name == "peak_bytes")
    return Peak(question.name, peak.real, peak.traced, _sac(question))


def _sac(question: Question) -> int | None:
    try:
        from torch.distributed._tools import sac_ilp  # noqa: F401
    except ImportError:
        return None
    from peers_torch_sac import built, module_graph
    from torch.distributed._tools.ilp_utils import get_peak_memory_runtime_baseline

    graph = module_graph(lambda: built(question, torch.float32), (MICRO_BATCH, SEQUENCE_LENGTH))
    peak_bytes, _ = get_peak_memory_runtime_baseline(graph)
    return int(peak_bytes - graph.nodes[0]["param_per_module"])
