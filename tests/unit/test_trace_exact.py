"""The trace against the real thing: bytes as the CPU allocator reports them, FLOPs as torch counts them."""

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from planner.model_graph import ModelGraph, ModelSource
from planner.trace import trace
from planner.trace.fake_model import fake_model
from planner.trace.liveness import all_events, peak_bytes
from planner.trace.record_step import record_step
from runtime.load_model import build, loss_of

LENGTH = 32
CONFIGS = {
    "llama": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 5, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 32, "n_layer": 5, "n_head": 4, "n_positions": 64},
    "bert": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 5, "architectures": ["BertForMaskedLM"]},
}
TOLERANCE = {"gpt2": 1e-3}
"""Relative, of bytes: transformers fills a few tensors of one number while it is first called."""


def _source(name: str, folder: Path) -> ModelSource:
    if name.startswith("gpt-"):
        arguments = {"width": "32", "depth": "5", "heads": "2", "vocab": "64", "tied": str(name == "gpt-tied").lower()}
        spec = f"{Path(__file__).parents[2] / 'examples' / 'gpt.py'}:gpt"
        return ModelSource(spec=spec, kind="file", arguments=arguments)
    fields = {"model_type": name, "vocab_size": 300, **CONFIGS[name]}
    if name != "gpt2":
        fields |= {"num_attention_heads": 4, "max_position_embeddings": 64}
    (folder / "config.json").write_text(json.dumps(fields))
    return ModelSource(spec=str(folder / "config.json"), kind="hf_config")


def _allocator(source: ModelSource, micro_batch_size: int) -> tuple[int, int, int]:
    """Returns what a real step saves, the most it holds with gradients, and its FLOPs by torch's count."""
    model, batch = build(source.spec, source.kind, source.arguments, micro_batch_size, LENGTH)
    model.train()
    marker_bytes = 12345
    with FlopCounterMode(display=False) as counter:
        loss_of(model(**batch)).backward()  # type: ignore[no-untyped-call]
    model.zero_grad()
    torch._C._set_mkldnn_enabled(False)
    try:
        with profile(profile_memory=True, activities=[ProfilerActivity.CPU]) as profiler:
            loss = loss_of(model(**batch))
            torch.empty(marker_bytes, dtype=torch.uint8)
            loss.backward()  # type: ignore[no-untyped-call]
    finally:
        torch._C._set_mkldnn_enabled(True)
    live = peak = saved = 0
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        if abs(event.nbytes()) == marker_bytes:
            saved = saved or live
            continue
        live += event.nbytes()
        peak = max(peak, live)
    return saved, peak, counter.get_total_flops()


def _walk(graph: ModelGraph, micro_batch_size: int) -> tuple[int, int]:
    """Returns what forward leaves, and the most that is live, by the segments."""
    live = peak = saved = 0
    for segment in graph.workload.segments:
        peak = max(peak, live + segment.timeline.peak_bytes(micro_batch_size))
        live += segment.net_bytes.at(micro_batch_size)
        saved += segment.net_bytes.at(micro_batch_size) if segment.phase == "forward" else 0
    return saved, peak


@pytest.mark.parametrize("name", ["gpt-untied", "gpt-tied", *CONFIGS])
def test_bytes_are_those_of_the_allocator(name: str, tmp_path: Path) -> None:
    source = _source(name, tmp_path)
    graph = trace(source, precision="fp32", device="cpu", sequence_length=LENGTH)
    recording = record_step(fake_model(source, 4, "fp32", LENGTH), "cpu")
    saved, peak, _ = _allocator(source, 4)
    tolerance = TOLERANCE.get(name, 0)
    assert peak_bytes(all_events(recording)) == pytest.approx(peak, rel=tolerance, abs=0)
    # At the profiler's marker, one number of the loss is no longer or not yet there.
    assert _walk(graph, 4)[0] == pytest.approx(saved, rel=tolerance, abs=4)


@pytest.mark.parametrize("name", ["gpt-untied", "bert"])
def test_operations_are_those_that_torch_counts(name: str, tmp_path: Path) -> None:
    source = _source(name, tmp_path)
    workload = trace(source, precision="fp32", device="cpu", sequence_length=LENGTH).workload
    # torch's registry has no formula for CPU's flash attention: 2 products forward, 5 backward, of S^2 x width each.
    missing = 3 * 5 * 7 * 2 * LENGTH**2 * 32 if name == "gpt-untied" else 0
    assert sum(s.flop.at(3) for s in workload.segments) == _allocator(source, 3)[2] + missing


@pytest.mark.parametrize("name", ["gpt-tied", "llama"])
def test_amounts_hold_at_sizes_that_were_not_traced(name: str, tmp_path: Path) -> None:
    source = _source(name, tmp_path)
    graph = trace(source, precision="bf16", device="cuda", sequence_length=LENGTH)
    for micro_batch_size in (1, 8):
        recording = record_step(fake_model(source, micro_batch_size, "bf16", LENGTH), "cuda")
        operators = [node.meta for node in recording.graph.nodes if "flop" in node.meta]
        last_forward = max(meta["index"] for meta in operators if meta["phase"] == "forward")
        saved = sum(e.delta_bytes for e in recording.events if e.operator <= last_forward)
        # transformers makes a vector of the batch's size that only a batch of one does without.
        assert _walk(graph, micro_batch_size)[0] == pytest.approx(saved, abs=8 if micro_batch_size == 1 else 0)
        assert sum(s.flop.at(micro_batch_size) for s in graph.workload.segments) == sum(m["flop"] for m in operators)
