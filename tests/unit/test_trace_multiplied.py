"""A step of a few layers, multiplied, against the same step with all layers run."""

import json
from pathlib import Path

import pytest
from torch import nn

from planner.model_graph import ModelSource
from planner.trace import trace
from planner.trace.blocks.layout import Repetition
from planner.trace.fake.fake_model import fake_model
from planner.trace.measure.outline import outline
from planner.trace.measure.truncate import ShortList, shorten, truncated
from planner.trace.record.record_step import record_step
from planner.trace.trace_step import TracedStep, trace_step

HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 64}
EXPERTS = {**HEADS, "moe_intermediate_size": 16, "num_experts_per_tok": 2}
CONFIGS: dict[str, dict[str, object]] = {
    "llama": {**HEADS, "num_hidden_layers": 9},
    "mixtral": {**HEADS, "num_hidden_layers": 8, "num_local_experts": 4},
    # One dense layer, then layers of experts.
    "deepseek_v3": {
        **EXPERTS,
        "num_hidden_layers": 8,
        "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    },
    # Three layers of one kind, then one of another, and so on.
    "qwen3_next": {
        **EXPERTS,
        "num_hidden_layers": 16,  # 12 of them run
        "num_experts": 4,
        "shared_expert_intermediate_size": 16,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
    },
    # Two lists of layers, of which the first holds a table that the others use.
    "t5": {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_heads": 4, "num_layers": 7},
    # A window in every second layer, told apart by an attribute only; the model counts its layers to choose a mask.
    "gemma3_text": {
        **HEADS,
        "num_hidden_layers": 9,
        "head_dim": 8,
        "sliding_window": 8,
        "layer_types": (["full_attention", "sliding_attention"] * 5)[:9],
    },
}


def _step(name: str, folder: Path, max_operators: int) -> TracedStep:
    fields = {"model_type": name, "vocab_size": 100, "max_position_embeddings": 64, **CONFIGS[name]}
    (folder / "config.json").write_text(json.dumps(fields))
    source = ModelSource(spec=str(folder / "config.json"), kind="hf_config")
    small, large = (fake_model(source, size, "bf16", 16, "cuda") for size in (2, 3))
    return trace_step(small, large, lambda model: record_step(model, "cuda"), 2, max_operators)


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_multiplied_step_is_that_of_all_layers(name: str, tmp_path: Path) -> None:
    few, whole = _step(name, tmp_path, 0), _step(name, tmp_path, 10**9)
    ran = [sum(node.op == "call_function" for node in step.recording.graph.nodes) for step in (few, whole)]
    assert ran[0] < ran[1]  # Not every layer ran.
    assert few.layout.blocks == whole.layout.blocks
    assert few.layout.block_of == whole.layout.block_of
    assert sorted(few.linears) == sorted(whole.linears)
    for one, other in zip(few.segments, whole.segments, strict=True):
        assert one == other


def test_layers_are_equal_only_if_their_attributes_are(tmp_path: Path) -> None:
    fields = {"model_type": "gemma3_text", "vocab_size": 100, **CONFIGS["gemma3_text"]}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    model = fake_model(ModelSource(spec=str(tmp_path / "config.json"), kind="hf_config"), 2, "bf16", 16, "cuda")
    (repetition,), kinds = outline(model.facts)
    found = [kinds[member] for member in repetition.members]
    assert [found.index(kind) for kind in found] == [0, 1] * 4 + [0]


def _short(kinds: str) -> ShortList:
    members = tuple(f"layers.{number}" for number in range(len(kinds)))
    (found,) = shorten((Repetition("layers", True, members),), dict(zip(members, kinds, strict=True))).lists
    return found


@pytest.mark.parametrize(
    ("kinds", "num_kept"),
    [("a" * 9, 4), ("aa", 2), ("d" + "a" * 9, 5), ("aaab" * 6, 12), ("ab" * 6 + "a", 7), ("abcdefgh", 8)],
)
def test_each_layer_has_a_counterpart_of_its_kind(kinds: str, num_kept: int) -> None:
    short = _short(kinds)
    assert short.num_kept == num_kept
    assert all(kinds[short.counterpart(number)] == kind for number, kind in enumerate(kinds))
    # Neighbours are those of the whole list: the first stays the first, the last the last.
    assert (short.counterpart(0), short.counterpart(len(kinds) - 1)) == (0, num_kept - 1)


def test_a_shorter_list_has_the_first_layers_and_is_whole_again_afterwards() -> None:
    layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)), nn.LayerNorm(4))
    repetition = Repetition("", True, tuple(str(number) for number in range(6)))
    with truncated(layers, shorten((repetition,), dict.fromkeys(repetition.members, "linear"))):
        assert [type(layer).__name__ for layer in layers] == ["Linear"] * 4 + ["LayerNorm"]
        assert [name for name, _ in layers.named_children()] == ["0", "1", "2", "3", "4"]
    assert len(layers) == 7


ODD = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self, twice):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self._how = {"twice": twice}

    def forward(self, x):
        x = x + self.fc(x).relu()
        return x + self.fc(x) if self._how["twice"] else x

class Net(nn.Module):
    def __init__(self, body, kinds):
        super().__init__()
        self.layers = nn.ModuleList(Layer(kind) for kind in kinds)
        self.body = body

    def forward(self, x):
        return self.body(self.layers, x).square().mean()

def plain(layers, x):
    for layer in layers:
        x = layer(x)
    return x

def counted(layers, x):
    for number, layer in enumerate(layers):
        x = layer(x).sin() if number % 5 == 4 else layer(x)
    return x

def sliced(layers, x):
    return plain(layers[:6], x)

def kept(layers, x):
    found = []
    for layer in layers:
        x = layer(x)
        found.append(x)
    return torch.stack(found)

def make(micro_batch_size, body="plain", alternate=False):
    kinds = [alternate and number % 2 == 1 for number in range(16)]
    return Net(globals()[body], kinds), {"x": torch.zeros(micro_batch_size, 8)}
"""


@pytest.mark.parametrize(
    "arguments",
    [{}, {"alternate": "true"}, {"body": "counted"}, {"body": "sliced"}, {"body": "kept"}],
    ids=["equal layers", "told apart inside", "counted by the model", "some left out", "results kept"],
)
def test_layers_that_only_look_equal_are_not_multiplied(arguments: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    source = ModelSource(spec=f"{tmp_path / 'odd.py'}:make", kind="file", arguments=arguments)
    small, large = (fake_model(source, size, "fp32", None) for size in (2, 3))
    few, whole = (trace_step(small, large, lambda model: record_step(model, "cpu"), 2, most) for most in (0, 10**9))
    assert few.segments == whole.segments
    assert few.layout.blocks == whole.layout.blocks
    was_multiplied = any("layers were run" in note for note in few.notes)
    assert was_multiplied == ("body" not in arguments)


PAIRS = """
import torch
from torch import nn

class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        y = self.fc(x)
        return (y @ y.T).logsumexp(1).mean()

def make(micro_batch_size):
    return Contrast(), {"x": torch.zeros(micro_batch_size, 8)}
"""


def test_what_grows_with_the_square_of_the_batch_is_told(tmp_path: Path) -> None:
    (tmp_path / "pairs.py").write_text(PAIRS)
    source = ModelSource(spec=f"{tmp_path / 'pairs.py'}:make", kind="file")
    (note,) = trace(source, precision="fp32", device="cpu").warnings
    assert "the model itself computes over pairs of samples (a tensor of 2 x 2)" in note
