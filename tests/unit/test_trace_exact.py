"""The trace against the real thing: bytes as the CPU allocator reports them, FLOPs as torch counts them."""

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from planner.model_graph import ModelGraph, ModelSource
from planner.trace import trace
from planner.trace.fake.fake_model import fake_model
from planner.trace.record.liveness import all_events, peak_bytes
from planner.trace.record.record_step import record_step
from planner.verify import verify
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


def _file_source(folder: Path, text: str) -> ModelSource:
    file = folder / "model.py"
    file.write_text("import functools\nimport torch\nfrom torch import nn\nfrom torch.nn import functional\n\n" + text)
    return ModelSource(spec=f"{file}:model", kind="file")


def _is_exact(source: ModelSource) -> None:
    found = verify(source, precision="fp32")
    for name in ("forward_flop", "backward_flop", "saved_bytes", "peak_bytes"):
        assert found.figure(name).traced == found.figure(name).real, name
    assert found.loss_holds


def test_gradients_that_meet_are_summed_in_place_unless_the_first_is_a_view(tmp_path: Path) -> None:
    # A linear layer's gradient for its 3-D input is a view, so that the sum with the other branch's is a third tensor.
    branches = (
        "class Branches(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.one, self.other = nn.Linear(64, 64), nn.Linear(64, 64)\n"
        "    def forward(self, x):\n"
        "        x = {inner}(self.one(x))\n"
        "        return ({first}(x) + self.other(x)).square().mean()\n"
        "def model(micro_batch_size):\n"
        "    return Branches(), {{'x': torch.randn(micro_batch_size, 16, 64)}}\n"
    )
    _is_exact(_file_source(tmp_path, branches.format(inner="torch.sin", first="torch.tanh")))
    (tmp_path / "views").mkdir()
    _is_exact(_file_source(tmp_path / "views", branches.format(inner="torch.sin", first="self.other")))


def test_a_tensor_that_a_function_caches_is_in_no_other_run(tmp_path: Path) -> None:
    text = (
        "@functools.lru_cache\n"
        "def grid(length):\n"
        "    return torch.arange(length).float().sin().expand(8, length)\n"
        "class Positions(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(16, 16)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x + grid(16)).square().mean()\n"
        "def model(micro_batch_size):\n"
        "    return Positions(), {'x': torch.randn(micro_batch_size, 8, 16)}\n"
    )
    _is_exact(_file_source(tmp_path, text))


def test_a_checkpoint_that_stops_early_leaves_nothing_alive(tmp_path: Path) -> None:
    # torch ends the second forward by an error; whoever keeps it keeps the tensors of all frames that it went through.
    text = (
        "from torch.utils.checkpoint import checkpoint\n"
        "class Checkpointed(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first = nn.Linear(32, 32)\n"
        "        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.GELU())\n"
        "    def forward(self, x):\n"
        "        return checkpoint(self.layers, self.first(x), use_reentrant=False).square().mean()\n"
        "def model(micro_batch_size):\n"
        "    return Checkpointed(), {'x': torch.randn(micro_batch_size, 8, 32)}\n"
    )
    _is_exact(_file_source(tmp_path, text))


def test_a_buffer_that_forward_replaces_is_the_first_one_in_each_recording(tmp_path: Path) -> None:
    text = (
        "class Observed(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(32, 32)\n"
        "        self.register_buffer('greatest', torch.zeros(1))\n"
        "    def forward(self, x):\n"
        "        self.greatest = torch.maximum(self.greatest * 0.9, x.detach().max())\n"
        "        return (self.layer(x) / self.greatest).square().mean()\n"
        "def model(micro_batch_size):\n"
        "    return Observed(), {'x': torch.randn(micro_batch_size, 8, 32)}\n"
    )
    _is_exact(_file_source(tmp_path, text))


def test_rows_that_a_known_mask_selects_are_counted(tmp_path: Path) -> None:
    text = (
        "class Selected(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table, self.layer = nn.Embedding(50, 32), nn.Linear(32, 32)\n"
        "    def forward(self, ids):\n"
        "        rows = self.table(ids)[ids % 3 == 0]\n"
        "        values = ids.numpy()\n"
        "        return self.layer(rows).square().mean() * float(values.max()) * len(rows)\n"
        "def model(micro_batch_size):\n"
        "    return Selected(), {'ids': torch.arange(12).expand(micro_batch_size, 12).contiguous()}\n"
    )
    source = _file_source(tmp_path, text)
    _is_exact(source)
    recording = record_step(fake_model(source, 2, "fp32", None), "cpu")
    products = [node for node in recording.graph.nodes if node.meta.get("kind_of_work") == "matmul"]
    assert products[0].meta["out"][0] == (8, 32)  # 4 of the 12 ids of each sample are multiples of 3
    assert products[0].meta["flop"] == 2 * 8 * 32 * 32


def test_what_recomputed_layers_share_lives_until_the_first_of_them_has_run_again(tmp_path: Path) -> None:
    text = (
        "class Masked(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layers = nn.ModuleList([Layer() for _ in range(4)])\n"
        "    def forward(self, x):\n"
        "        mask = torch.ones(64, 64).tril().bool()\n"
        "        for layer in self.layers:\n"
        "            x = layer(x, mask)\n"
        "        return x.square().mean()\n"
        "class Layer(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(64, 64)\n"
        "    def forward(self, x, mask):\n"
        "        return x + self.layer(x * mask)\n"
        "def model(micro_batch_size):\n"
        "    return Masked(), {'x': torch.randn(micro_batch_size, 64, 64, requires_grad=True)}\n"
    )
    for autocast in (None, "bf16"):
        found = verify(_file_source(tmp_path, text), precision="fp32", autocast=autocast, recompute=True)  # type: ignore[arg-type]
        for name in ("backward_flop", "saved_bytes", "peak_bytes"):
            assert found.figure(name).traced == found.figure(name).real, name


def test_a_tensor_that_the_file_makes_when_it_is_loaded_is_read_as_it_is(tmp_path: Path) -> None:
    text = (
        "EVEN = torch.arange(16) % 2 == 0\n"
        "SCALE = torch.linspace(0.5, 1.0, 16)\n"
        "class Scaled(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(16, 16)\n"
        "    def forward(self, x):\n"
        "        return self.layer(x * SCALE)[..., EVEN].square().mean()\n"
        "def model(micro_batch_size):\n"
        "    return Scaled(), {'x': torch.randn(micro_batch_size, 8, 16)}\n"
    )
    _is_exact(_file_source(tmp_path, text))
