"""Each way of tracing against the exact one, and models that only come through by another."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from costmodels.workload import Amount, Phase
from planner.errors import TraceError
from planner.model_graph import ModelGraph, ModelSource
from planner.trace import trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt.py"
SMALL = {"width": "64", "depth": "2", "heads": "4", "vocab": "128"}


@functools.cache
def _example(way: str, tied: str = "false") -> ModelGraph:
    return _traced(way, tied)


def _traced(way: str, tied: str) -> ModelGraph:
    source = ModelSource(spec=f"{EXAMPLE}:gpt", kind="file", arguments={**SMALL, "tied": tied})
    return trace(source, precision="fp32", device="cpu", sequence_length=32, way=way)  # type: ignore[arg-type]


def _written(folder: Path, text: str, name: str = "make") -> ModelSource:
    file = folder / "model.py"
    file.write_text(text)
    return ModelSource(spec=f"{file}:{name}", kind="file")


def _flop(graph: ModelGraph, phase: Phase) -> int:
    return sum((s.flop for s in graph.workload.segments if s.phase == phase), Amount()).at(4)


def _saved(graph: ModelGraph) -> int:
    return sum((s.net_bytes for s in graph.workload.segments if s.phase == "forward"), Amount()).at(4)


@pytest.mark.parametrize("tied", ["false", "true"])
@pytest.mark.parametrize("way", ["make_fx", "static"])
def test_every_way_finds_the_same_parameters_blocks_and_order_of_gradients(way: str, tied: str) -> None:
    exact, other = _example("fake", tied=tied), _example(way, tied=tied)
    assert (exact.traced_by, other.traced_by) == ("fake", way)
    assert not exact.lost and len(other.lost) > 1
    assert other.workload.parameters == exact.workload.parameters
    assert other.workload.linears == exact.workload.linears
    assert {block.name for block in exact.workload.blocks} == {block.name for block in other.workload.blocks}
    layers = [[b.block_class for b in g.workload.blocks if b.name.startswith("layers.")] for g in (exact, other)]
    assert [len(set(classes)) for classes in layers] == [1, 1]
    gradients = [[i for s in g.workload.segments for i in s.gradients] for g in (exact, other)]
    assert sorted(gradients[0]) == sorted(gradients[1]) == list(range(len(exact.workload.parameters)))


def test_the_joint_graph_has_the_same_operations_memory_and_recomputation() -> None:
    exact, joint = _example("fake"), _example("make_fx")
    for phase in ("forward", "backward"):
        assert _flop(joint, phase) == _flop(exact, phase)  # type: ignore[arg-type]
    assert _saved(joint) == pytest.approx(_saved(exact), rel=1e-3)
    able = [[b.name for b in g.workload.blocks if b.recomputable] for g in (exact, joint)]
    assert able[0] == able[1] == ["layers.0", "layers.1"]
    kinds = [{work.kind for s in g.workload.segments for work in s.work} for g in (exact, joint)]
    assert kinds[0] == kinds[1] == {"matmul", "attention"}


def test_the_walk_counts_all_but_attention_and_what_functions_save() -> None:
    exact, static = _example("fake"), _example("static")
    products = {
        phase: sum(
            (w.flop for s in exact.workload.segments if s.phase == phase for w in s.work if w.kind == "matmul"),
            Amount(),
        ).at(4)
        for phase in ("forward", "backward")
    }
    assert _flop(static, "forward") == products["forward"]
    assert _flop(static, "backward") == products["backward"]
    assert 0.5 * _saved(exact) < _saved(static) <= _saved(exact)
    assert not any(block.recomputable for block in static.workload.blocks)


@pytest.mark.parametrize("way", ["make_fx", "static"])
def test_all_that_is_allocated_is_freed_but_the_loss_and_the_gradients(way: str) -> None:
    segments = _example(way).workload.segments
    assert sum((segment.net_bytes for segment in segments), Amount()).at(4) == 4
    gradients = sum(event.constant for segment in segments for event in segment.timeline.events if event.is_gradient)
    assert gradients == 4 * sum(parameter.num_elements for parameter in _example(way).workload.parameters)


@pytest.mark.parametrize("way", ["make_fx", "static"])
def test_every_way_follows_autocast(way: str) -> None:
    source = ModelSource(spec=f"{EXAMPLE}:gpt", kind="file", arguments=SMALL)
    graph = trace(source, precision="fp32", device="cuda", autocast="bf16", sequence_length=32, way=way)  # type: ignore[arg-type]
    products = [work for segment in graph.workload.segments for work in segment.work if work.kind == "matmul"]
    assert {work.dtype for work in products} == {"bfloat16"}
    assert (graph.autocast, graph.precision, graph.traced_by) == ("bf16", "fp32", way)


CONVOLUTIONS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.head = nn.Linear(4 * 16 * 16, 10)

    def forward(self, pixels, labels):
        x = self.up(self.depthwise(self.pool(torch.relu(self.norm(self.stem(pixels))))))
        return nn.functional.cross_entropy(self.head(x.flatten(1)), labels)

def make(micro_batch_size):
    labels = torch.zeros(micro_batch_size, dtype=torch.long)
    return Net(), {"pixels": torch.zeros(micro_batch_size, 3, 32, 32), "labels": labels}
"""


def test_the_walk_follows_the_places_of_an_image(tmp_path: Path) -> None:
    source = _written(tmp_path, CONVOLUTIONS)
    exact, static = (trace(source, precision="fp32", device="cpu", way=way) for way in ("fake", "static"))  # type: ignore[arg-type]
    for phase in ("forward", "backward"):
        assert _flop(static, phase) == _flop(exact, phase)  # type: ignore[arg-type]


SHARED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.Linear(4, 4)
        self.layers = nn.ModuleList([layer, layer, layer])
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x).mean()

def make(micro_batch_size):
    return Net(), {"x": torch.zeros(micro_batch_size, 4)}
"""


def test_the_joint_graph_knows_a_module_that_is_held_several_times(tmp_path: Path) -> None:
    source = _written(tmp_path, SHARED)
    exact, joint = (trace(source, precision="fp32", device="cpu", way=way) for way in ("fake", "make_fx"))  # type: ignore[arg-type]
    assert joint.workload.parameters == exact.workload.parameters
    for phase in ("forward", "backward"):
        assert _flop(joint, phase) == _flop(exact, phase)  # type: ignore[arg-type]
    assert _saved(joint) == _saved(exact)


TRANSFORM = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.func.vmap(lambda row: self.fc(row).sum())(x).mean()

def make(micro_batch_size):
    return Net(), {"x": torch.zeros(micro_batch_size, 4)}
"""
OPERATOR = """
import torch
from torch import nn

@torch.library.custom_op("fallbacks::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

twice.register_autograd(lambda context, gradient: gradient * 2)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return twice(self.fc(x)).mean()

def make(micro_batch_size):
    return Net(), {"x": torch.zeros(micro_batch_size, 4)}
"""
IMPOSSIBLE = TRANSFORM.replace(
    "return torch.func.vmap(lambda row: self.fc(row).sum())(x).mean()", "raise RuntimeError('needs its simulator')"
)


@pytest.mark.parametrize(
    ("text", "way", "reason"),
    [
        (TRANSFORM, "make_fx", "Cannot access storage of BatchedTensorImpl (.*model.py:11)"),
        (OPERATOR, "static", "There was no fake impl registered"),
    ],
)
def test_a_model_that_the_exact_way_cannot_watch_falls_to_the_next(
    text: str, way: str, reason: str, tmp_path: Path
) -> None:
    source = _written(tmp_path, text)
    graph = trace(source, precision="fp32", device="cpu")
    assert graph.traced_by == way
    assert graph.workload.num_params == 20
    assert graph.lost[0].startswith("The run on fake tensors failed: ")
    assert reason.partition(" (")[0] in graph.lost[0]
    with pytest.raises(TraceError, match="forward failed"):
        trace(source, precision="fp32", device="cpu", way="fake")


def test_what_fails_in_the_model_itself_is_no_reason_to_fall(tmp_path: Path) -> None:
    source = _written(tmp_path, IMPOSSIBLE)
    with pytest.raises(TraceError, match="needs its simulator"):
        trace(source, precision="fp32", device="cpu")
    graph = trace(source, precision="fp32", device="cpu", way="static")
    assert (graph.traced_by, graph.workload.num_params) == ("static", 20)
    assert _flop(graph, "forward") == 2 * 4 * 4 * 4


def test_a_trace_is_the_same_twice() -> None:
    for way in ("make_fx", "static"):
        assert _example(way).model_dump_json() == _traced(way, "false").model_dump_json()
