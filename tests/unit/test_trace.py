"""What the trace finds in models whose blocks, calls, ties and FLOPs are known."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from costmodels.workload import Amount, Segment, Workload
from planner.model_graph import ModelGraph, ModelSource
from planner.trace import trace
from runtime.load_model import build, loss_of

EXAMPLE = f"{Path(__file__).parents[2] / 'examples' / 'gpt.py'}:gpt"
TINY = {"width": "32", "depth": "6", "heads": "2", "vocab": "64"}

ODD = """
import torch
from torch import nn

class Odd(nn.Module):
    '''Attention that is never called by itself, a frozen part, a parameter of the root, a layer called twice.'''

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.frozen = nn.Linear(8, 8)
        self.frozen.requires_grad_(False)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.twice = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 3)

    def forward(self, x):
        x = self.frozen(x) * self.scale
        x = self.attention(x, x, x, need_weights=False)[0]
        return self.twice(self.twice(x).relu()).square().mean()

def make(micro_batch_size):
    return Odd(), {'x': torch.zeros(micro_batch_size, 5, 8)}
"""


def _example(**arguments: str) -> ModelGraph:
    source = ModelSource(spec=EXAMPLE, kind="file", arguments={**TINY, **arguments})
    return trace(source, precision="fp32", device="cpu", sequence_length=16)


@pytest.fixture(scope="module")
def example() -> ModelGraph:
    return _example()


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> ModelGraph:
    file = tmp_path_factory.mktemp("odd") / "odd.py"
    file.write_text(ODD)
    return trace(ModelSource(spec=f"{file}:make", kind="file"), precision="fp32", device="cpu")


def _segments(workload: Workload, block: str, phase: str) -> list[Segment]:
    return [s for s in workload.segments if workload.blocks[s.block].name == block and s.phase == phase]


def test_each_layer_is_a_block_and_each_other_part_with_parameters_too(example: ModelGraph) -> None:
    layers = [f"layers.{i}" for i in range(6)]
    names = [block.name for block in example.workload.blocks]
    assert names == ["tokens", "", "positions", *layers, "norm", "head"]
    assert [b.name for b in example.workload.blocks if b.recomputable] == layers
    assert len({b.block_class for b in example.workload.blocks if b.recomputable}) == 1
    assert example.workload.num_classes == 6


def test_a_single_layer_is_a_block_as_well() -> None:
    blocks = _example(depth="1").workload.blocks
    assert [block.name for block in blocks if block.recomputable] == ["layers.0"]


def test_the_calls_of_forward_are_in_order_and_those_of_backward_reversed(example: ModelGraph) -> None:
    parts = ["attention_norm", "attention.project_in", "attention.project_out", "feed_forward_norm", "feed_forward.0"]
    expected = [f"layers.2.{part}" for part in [*parts, "feed_forward.2"]]
    (forward,) = _segments(example.workload, "layers.2", "forward")
    (backward,) = _segments(example.workload, "layers.2", "backward")
    assert [call.module for call in forward.calls if call.parameters] == expected
    assert [call.module for call in backward.calls if call.parameters] == expected[::-1]
    assert forward.calls[0].module == "layers.2"  # Callers come first, those without parameters too.
    names = [example.workload.parameters[i].name for call in forward.calls for i in call.parameters]
    assert names == [f"{module}.{kind}" for module in expected for kind in ("weight", "bias")]


def test_a_tied_weight_is_one_parameter_seen_at_both_calls() -> None:
    workload = _example(tied="true").workload
    tied = workload.parameters[0]
    assert (tied.name, tied.aliases) == ("tokens.weight", ("head.weight",))
    assert workload.num_params == _example().workload.num_params - 64 * 32
    calls = [call.module for s in workload.segments if s.phase == "forward" for call in s.calls if 0 in call.parameters]
    assert calls == ["tokens", "head"]
    assert sum(0 in block.parameters for block in workload.blocks) == 1


def test_a_graph_survives_being_saved(example: ModelGraph) -> None:
    assert ModelGraph.model_validate_json(example.model_dump_json()) == example


def test_two_traces_are_equal(example: ModelGraph) -> None:
    assert _example() == example


def test_the_default_sequence_length_is_known() -> None:
    source = ModelSource(spec=EXAMPLE, kind="file", arguments=TINY)
    assert trace(source, precision="fp32", device="cpu").sequence_length == 128


def test_half_precision_halves_the_saved_floats(example: ModelGraph) -> None:
    source = ModelSource(spec=EXAMPLE, kind="file", arguments=TINY)
    half = trace(source, precision="bf16", device="cpu", sequence_length=16)
    (full_layer,) = _segments(example.workload, "layers.2", "forward")
    (half_layer,) = _segments(half.workload, "layers.2", "forward")
    # Not exactly half: statistics of norms and of attention stay in fp32.
    assert 0.5 <= half_layer.net_bytes.at(8) / full_layer.net_bytes.at(8) < 0.53
    assert half_layer.flop == full_layer.flop


def test_a_layer_keeps_only_its_output_when_it_is_recomputed(example: ModelGraph) -> None:
    (forward,) = _segments(example.workload, "layers.2", "forward")
    (backward,) = _segments(example.workload, "layers.2", "backward")
    assert forward.recomputed and backward.recomputed
    output = 3 * 16 * 32 * 4
    assert forward.recomputed.timeline.net_bytes.at(3) == output
    assert forward.net_bytes.at(3) > 10 * output
    # Run again, it saves what it saved before, but for its output, which is there; backward frees all of it.
    assert backward.recomputed.again.net_bytes.at(3) == forward.net_bytes.at(3) - output
    assert backward.recomputed.timeline.net_bytes == backward.net_bytes
    assert forward.recomputed.timeline.peak_bytes(3) < forward.timeline.peak_bytes(3)


def test_what_forward_saves_backward_frees(example: ModelGraph) -> None:
    left = sum(segment.net_bytes.at(5) for segment in example.workload.segments)
    assert left == 4  # The loss itself.


def test_parameters_used_by_a_module_that_does_not_own_them_are_seen_at_its_call(odd: ModelGraph) -> None:
    index = {parameter.name: i for i, parameter in enumerate(odd.workload.parameters)}
    calls = {call.module: call.parameters for s in odd.workload.segments if s.phase == "forward" for call in s.calls}
    attention = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    assert calls["attention"] == tuple(index[f"attention.{name}"] for name in attention)
    assert calls[""] == (index["scale"],)


def test_a_module_called_twice_appears_twice(odd: ModelGraph) -> None:
    calls = [call.module for s in odd.workload.segments for call in s.calls if call.module == "twice"]
    assert len(calls) == 4


def test_frozen_and_unused_parameters_are_kept_apart(odd: ModelGraph) -> None:
    frozen = [parameter.name for parameter in odd.workload.parameters if not parameter.trainable]
    assert frozen == ["frozen.weight", "frozen.bias"]
    assert odd.workload.num_params - odd.workload.num_trainable_params == 8 * 8 + 8
    assert odd.workload.blocks[-1].name == "unused"
    backward = {call.module for s in odd.workload.segments if s.phase == "backward" for call in s.calls}
    assert not backward & {"frozen", "unused"}


def test_every_parameter_is_in_one_block(odd: ModelGraph, example: ModelGraph) -> None:
    for graph in (odd, example):
        owned = sorted(index for block in graph.workload.blocks for index in block.parameters)
        assert owned == list(range(len(graph.workload.parameters)))


def test_llama_70b_does_the_operations_of_its_closed_form(tmp_path: Path) -> None:
    """2 operations per weight and token forward, twice that backward; attention 4 S^2 h, then 2.5 x that."""
    hidden, inner, layers, heads, groups, vocab, length = 8192, 28672, 80, 64, 8, 128256, 4096
    config = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": vocab,
        "max_position_embeddings": length,
        "rope_theta": 500000.0,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    source = ModelSource(spec=str(tmp_path / "config.json"), kind="hf_config")
    workload = trace(source, precision="bf16", device="cuda", sequence_length=length).workload
    matrix_products = layers * (2 * hidden**2 + 2 * hidden**2 * groups // heads + 3 * hidden * inner) + vocab * hidden
    attention = 4 * length**2 * hidden * layers
    forward = sum(s.flop.at(4) for s in workload.segments if s.phase == "forward")
    backward = sum(s.flop.at(4) for s in workload.segments if s.phase == "backward")
    assert forward == 4 * (2 * matrix_products * length + attention)
    assert backward == 4 * (4 * matrix_products * length + 5 * attention // 2)
    assert [block.recomputable for block in workload.blocks].count(True) == layers


def test_of_an_embedding_only_the_rows_that_are_looked_up_move(example: ModelGraph) -> None:
    (lookup,) = _segments(example.workload, "tokens", "forward")
    rows_bytes = 16 * 32 * 4
    assert (lookup.io_bytes, lookup.product_io_bytes) == (Amount(0, 2 * rows_bytes), Amount())


def test_bytes_of_products_are_kept_apart_from_those_of_other_operators(example: ModelGraph) -> None:
    (head,) = _segments(example.workload, "head", "forward")
    weight_bytes, activation_bytes, logit_bytes = 64 * 32 * 4, 16 * 32 * 4, 16 * 64 * 4
    assert head.product_io_bytes == Amount(weight_bytes, activation_bytes + logit_bytes)


TANGLED = Path(__file__).parents[1] / "integration" / "traffic_models.py"


def _tangled() -> Workload:
    source = ModelSource(spec=f"{TANGLED}:tangled", kind="file", arguments={})
    return trace(source, precision="fp32", device="cpu", sequence_length=8).workload


def test_a_call_knows_its_depth_its_gradients_and_its_places() -> None:
    calls = [call for segment in _tangled().segments if segment.phase == "forward" for call in segment.calls]
    of = {call.module: call for call in calls}
    assert [call.depth for call in calls if call.module in ("", "layers.0", "layers.0.up")] == [0, 1, 2]
    assert [call.num_outputs for call in calls if call.module.startswith("layers.") and call.depth == 1] == [2, 2, 1]
    assert (of["tokens"].inputs_require_grad, of["layers.1"].inputs_require_grad) == (False, True)
    assert (of["shared"].num_places, of["shared.0"].num_places, of["head"].num_places) == (2, 2, 1)


def test_a_parameter_that_is_asked_for_is_one_of_the_call_that_asks() -> None:
    workload = _tangled()
    layer = next(call for segment in workload.segments for call in segment.calls if call.module == "layers.0")
    assert [workload.parameters[index].name for index in layer.parameters] == ["layers.0.down.weight"]


def test_gradients_come_in_autograds_order_and_what_nobody_uses_has_none() -> None:
    workload = _tangled()
    names = [workload.parameters[index].name for segment in workload.segments for index in segment.gradients]
    assert names[:2] == ["head.bias", "head.weight"]
    assert names[-1] == "tokens.weight"
    trained = {parameter.name for parameter in workload.parameters if parameter.trainable}
    assert trained - set(names) == {"nobody.weight", "nobody.bias", "layers.1.table.weight", "layers.2.table.weight"}
    assert len(names) == len(set(names))


LSTM = """
import torch
from torch import nn

class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 8, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0].square().mean()

def make(micro_batch_size):
    return Reader(), {'x': torch.zeros(micro_batch_size, 5, 6)}
"""


def _completed(model: nn.Module, batch: dict[str, Any]) -> list[str]:
    """Returns the parameters in the order in which autograd really completes their gradients."""
    found: list[str] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: found.append(name))
    loss_of(model(**batch)).backward()
    return found


def test_gradients_come_in_the_order_of_a_real_step(example: ModelGraph) -> None:
    for workload, model in (
        (example.workload, build(EXAMPLE, "file", TINY, 1, 16)),
        (_tangled(), build(f"{TANGLED}:tangled", "file", {}, 1, 8)),
    ):
        names = [workload.parameters[index].name for segment in workload.segments for index in segment.gradients]
        assert names == _completed(*model)


def test_a_recurrent_layer_is_one_operator_as_in_a_real_step(tmp_path: Path) -> None:
    (tmp_path / "reader.py").write_text(LSTM)
    source = ModelSource(spec=f"{tmp_path / 'reader.py'}:make", kind="file", arguments={})
    workload = trace(source, precision="fp32", device="cpu", sequence_length=None).workload
    names = [workload.parameters[index].name for segment in workload.segments for index in segment.gradients]
    assert names == _completed(*build(source.spec, "file", {}, 1, None))
    forward = sum((s.flop for s in workload.segments if s.phase == "forward"), Amount()).at(1)
    assert forward == 2 * 5 * 4 * 8 * ((6 + 8) + (8 + 8))
    assert sum((s.flop for s in workload.segments if s.phase == "backward"), Amount()).at(1) == 2 * forward
