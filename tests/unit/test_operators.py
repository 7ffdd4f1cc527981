"""Kernels that no dispatcher sees: what they keep for backward, what they cost, and how models come to them."""

from __future__ import annotations

import importlib
import json
import sys
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planner.errors import TraceError
from planner.model_graph import ModelSource
from planner.trace import trace
from planner.trace.fake.fake_model import fake_model
from planner.trace.operators import padding, registered_operators
from planner.trace.operators.flash_functions import flash_attn_func
from planner.trace.operators.stand_in import UnknownNameError
from planner.trace.record.liveness import all_events, peak_bytes
from planner.trace.record.record_step import StepError, record_step
from planner.trace.record.recording import Recording
from runtime.load_model import build

B, L, W, H, V, DEPTH = 2, 64, 64, 4, 96, 2
HALF = 2
"""Bytes of a number in bf16."""


class Step(NamedTuple):
    recording: Recording
    saved_bytes: int
    peak_bytes: int
    flop: Counter[str]
    operators: Counter[str]

    def said(self, text: str) -> bool:
        return any(text in warning for warning in self.recording.warnings)


def step(source: ModelSource, device: Any = "cuda", length: int | None = L, precision: Any = "bf16") -> Step:
    recording = record_step(fake_model(source, B, precision, length, device), device)
    nodes = [node for node in recording.graph.nodes if "flop" in node.meta]
    (loss,) = (node.args[0] for node in recording.graph.nodes if node.op == "output")
    last = loss.meta["index"]
    flop: Counter[str] = Counter()
    for node in nodes:
        flop[node.meta["phase"]] += node.meta["flop"]
    saved_bytes = sum(event.delta_bytes for event in recording.events if event.operator <= last)
    operators = Counter(str(node.target).split(".")[1] for node in nodes if str(node.target).startswith("shardplan."))
    return Step(recording, saved_bytes, peak_bytes(all_events(recording)), flop, operators)


def written(folder: Path, body: str, name: str = "written") -> ModelSource:
    """A model in a file: `body` gives `Layer(width)`, or a `Model` of its own."""
    text = f"""
import torch
from torch import nn
from torch.nn import functional as F
{body}

class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding({V}, {W})
        self.layers = nn.ModuleList(Layer({W}) for _ in range({DEPTH}))
        self.head = nn.Linear({W}, {V})

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), ids.flatten())

def model(micro_batch_size, sequence_length):
    ids = torch.arange(micro_batch_size * sequence_length).reshape(micro_batch_size, -1) % {V}
    made = globals().get("Model", Stack)()
    return made, {{"ids": ids}}
"""
    path = folder / f"{name}.py"
    path.write_text(text)
    return ModelSource(spec=f"{path}:model", kind="file")


def config(folder: Path, **fields: Any) -> ModelSource:
    (folder / "config.json").write_text(json.dumps({"vocab_size": V, "hidden_size": W, **fields}))
    return ModelSource(spec=str(folder / "config.json"), kind="hf_config")


ATTENTION = """
class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        b, l, w = x.shape
        qkv = self.qkv(x).view(b, l, 3, 4, w // 4)
        return self.attend(qkv).reshape(b, l, w)
"""
PLAIN = (
    ATTENTION
    + """
    def attend(self, qkv):
        q, k, v = qkv.transpose(1, 3).unbind(2)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
"""
)
FUNCTIONS = {
    "flash_attn_func": "flash_attn_func(*qkv.unbind(2), causal=True)",
    "flash_attn_qkvpacked_func": "flash_attn_qkvpacked_func(qkv, causal=True)",
    "flash_attn_kvpacked_func": "flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:], causal=True)",
}
SEED_BYTES = 16
"""The state of the random numbers that each attention keeps: a pair of whole numbers; torch's own keeps two scalars."""


def flash(name: str, call: str, module: str = "flash_attn") -> str:
    return f"from {module} import {name}\n{ATTENTION}\n    def attend(self, qkv):\n        return {call}\n"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_flash_attention_costs_what_torchs_own_flash_attention_costs(name: str, tmp_path: Path) -> None:
    own = step(written(tmp_path, PLAIN, "plain"))
    theirs = step(written(tmp_path, flash(name, FUNCTIONS[name])))
    assert theirs.flop == own.flop
    assert abs(theirs.saved_bytes - own.saved_bytes) <= DEPTH * SEED_BYTES
    assert theirs.operators == {"flash_attention": DEPTH, "flash_attention_backward": DEPTH}
    assert theirs.said("flash_attn 2.8.3 is taken to be installed")


def test_flash_attention_of_sequences_of_known_lengths_counts_their_pairs(tmp_path: Path) -> None:
    lengths = (10, 30, 88)
    begins = f"torch.tensor([0, 10, 40, {sum(lengths)}], dtype=torch.int32)"
    call = f"flash_attn_varlen_qkvpacked_func(qkv.flatten(0, 1), {begins}, 88, causal=True)"
    found = step(written(tmp_path, flash("flash_attn_varlen_qkvpacked_func", call)))
    (forward, *_) = [node for node in found.recording.graph.nodes if "flash_attention." in str(node.target)]
    assert forward.meta["flop"] == 4 * sum(length**2 for length in lengths) * W


def test_a_window_of_flash_attention_is_counted_as_wide_as_it_is(tmp_path: Path) -> None:
    call = "flash_attn_func(*qkv.unbind(2), causal=True, window_size=(7, 0))"
    found = step(written(tmp_path, flash("flash_attn_func", call)))
    (forward, *_) = [node for node in found.recording.graph.nodes if "flash_attention." in str(node.target)]
    assert forward.meta["flop"] == 4 * B * L * 8 * W


def test_flash_attention_refuses_fp32_as_the_kernel_does(tmp_path: Path) -> None:
    source = written(tmp_path, flash("flash_attn_func", FUNCTIONS["flash_attn_func"]))
    with pytest.raises(StepError, match="fp16 and bf16"):
        step(source, precision="fp32")


def test_a_packed_gradient_is_one_tensor_and_its_workspaces_are_in_the_peak(tmp_path: Path) -> None:
    found = step(written(tmp_path, flash("flash_attn_qkvpacked_func", FUNCTIONS["flash_attn_qkvpacked_func"])))
    nodes = [node for node in found.recording.graph.nodes if "flash_attention_backward" in str(node.target)]
    packed = {node.args[6].args[0] for node in nodes if node.args[6].args[0] is node.args[7].args[0]}
    assert [node.meta["out"][0][0] for node in packed] == [(B, L, H, W // H)] * DEPTH
    parts = [node for node in found.recording.graph.nodes if node.meta.get("part_of") is nodes[0]]
    rows, wide = 128, 32
    assert [node.meta["bytes"] for node in parts] == [4 * B * H * rows, 4 * B * H * rows * wide]


def test_padding_is_taken_out_and_put_back_with_the_right_gradients() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(3, 5, 2, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    rows, indices, begins, longest, used = padding.unpad_input(hidden, mask)
    assert torch.equal(rows, hidden[mask.bool()])
    assert (begins.tolist(), longest, used.tolist()) == ([0, 2, 7, 8], 5, [2, 5, 1])
    back = padding.pad_input(rows * 2, indices, 3, 5)
    weight = torch.randn_like(back)
    (found,) = torch.autograd.grad((back * weight).sum(), hidden)
    assert torch.equal(found, 2 * weight * mask[..., None])


def test_flash_attention_2_of_transformers_costs_what_sdpa_costs(tmp_path: Path) -> None:
    fields = {"model_type": "llama", "intermediate_size": 96, "num_hidden_layers": DEPTH, "num_attention_heads": H}
    body = f"""
from transformers import LlamaConfig, LlamaForCausalLM
def model(micro_batch_size, sequence_length, attention: str = "sdpa"):
    config = LlamaConfig(vocab_size={V}, hidden_size={W}, **{fields})
    ids = torch.arange(micro_batch_size * sequence_length).reshape(micro_batch_size, -1) % {V}
    made = LlamaForCausalLM._from_config(config, attn_implementation=attention)
    return made, dict(input_ids=ids, labels=ids, use_cache=False)
"""
    path = tmp_path / "llama.py"
    path.write_text(f"import torch\n{body}")
    steps = [
        step(ModelSource(spec=f"{path}:model", kind="file", arguments={"attention": name}))
        for name in ("sdpa", "flash_attention_2")
    ]
    assert steps[0].flop == steps[1].flop
    assert abs(steps[0].saved_bytes - steps[1].saved_bytes) <= DEPTH * SEED_BYTES
    assert steps[1].operators["flash_attention"] == DEPTH


MAMBA = {"model_type": "mamba", "num_hidden_layers": DEPTH, "state_size": 8, "expand": 2, "time_step_rank": 4}


def test_mambas_inner_function_keeps_its_input_and_computes_the_rest_again(tmp_path: Path) -> None:
    one, two = (
        step(config(tmp_path, **MAMBA | {"num_hidden_layers": depth}), "cuda").saved_bytes
        for depth in (DEPTH, DEPTH + 1)
    )
    inner, states, rank = 2 * W, 8, 4
    tokens = B * L
    inside = (
        HALF * tokens * 2 * inner  # xz
        + HALF * tokens * (rank + 2 * states)  # x_dbl
        + 2 * HALF * tokens * states  # B and C
        + HALF * tokens * inner  # what the scan gives before the gate
        + 4 * B * inner * 2 * states  # its states at the ends of its one chunk
        + 4 * inner * states  # A; exp(A_log) lies in the same
        + 4 * (2 * inner + inner * states)  # D, the bias and A_log in fp32
    )
    # The norm of the block: its input in fp32 twice (itself and normalized), its scales, its input to the projection.
    around = 2 * 4 * tokens * W + 4 * tokens + 2 * HALF * tokens * W
    assert inside <= two - one <= inside + around


@pytest.mark.parametrize(
    ("fields", "kernels"),
    [
        (MAMBA, {"selective_scan", "causal_conv1d"}),
        (MAMBA | {"model_type": "falcon_mamba"}, {"selective_scan", "causal_conv1d", "mamba_rms_norm"}),
        (
            {"model_type": "mamba2", "num_hidden_layers": 2, "state_size": 16, "num_heads": 8, "head_dim": 16}
            | {"n_groups": 1, "chunk_size": 32},
            {"chunk_scan", "gated_rms_norm", "causal_conv1d"},
        ),
        (
            {"model_type": "qwen3_next", "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2}
            | {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "linear_num_value_heads": 4}
            | {"linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "head_dim": 16},
            {"delta_rule_states", "delta_rule_output", "causal_conv1d"},
        ),
        ({"model_type": "rwkv", "num_hidden_layers": 2, "context_length": 512}, {"wkv_scan"}),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)
def test_recurrent_models_of_transformers_run_their_kernels_on_a_gpu(
    fields: dict[str, Any], kernels: set[str], tmp_path: Path
) -> None:
    short, long = (step(config(tmp_path, **fields), "cuda", length) for length in (128, 256))
    assert kernels <= set(short.operators)
    assert len(short.recording.graph.nodes) == len(long.recording.graph.nodes)
    assert not short.said("fallback")


def test_the_whole_trace_of_a_mamba_2_says_what_it_took_from_the_packages(tmp_path: Path) -> None:
    fields = {"model_type": "mamba2", "num_hidden_layers": 2, "state_size": 16, "num_heads": 8, "head_dim": 16}
    source = config(tmp_path, **fields, n_groups=1, chunk_size=32)
    graph = trace(source, precision="bf16", device="cuda", sequence_length=128)
    assert [warning.partition(" ")[0] for warning in graph.warnings] == ["causal_conv1d", "mamba_ssm"]
    assert sum(segment.flop.at(1) for segment in graph.workload.segments) > 0


def test_on_a_cpu_a_mamba_runs_its_loop(tmp_path: Path) -> None:
    short, long = (step(config(tmp_path, **MAMBA), "cpu", length) for length in (8, 16))
    assert not short.operators
    assert len(long.recording.graph.nodes) > 1.5 * len(short.recording.graph.nodes)


def test_the_kernels_are_gone_when_the_trace_is_over(tmp_path: Path) -> None:
    step(config(tmp_path, **MAMBA))
    assert not {"flash_attn", "mamba_ssm", "causal_conv1d"} & set(sys.modules)
    test_on_a_cpu_a_mamba_runs_its_loop(tmp_path)


def test_a_mamba_of_2_8_billion_is_traced_in_seconds(tmp_path: Path) -> None:
    fields = {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280}
    begin = time.process_time()
    found = step(config(tmp_path, **fields), "cuda", 2048)
    assert time.process_time() - begin < 30
    assert found.operators["selective_scan"] == 64


def test_the_delta_rule_costs_about_what_its_fallback_in_torch_multiplies(tmp_path: Path) -> None:
    fields = {"model_type": "qwen3_next", "num_hidden_layers": 1, "layer_types": ["linear_attention"]}
    fields |= {"linear_num_value_heads": 8, "linear_num_key_heads": 8, "num_experts": 2, "num_experts_per_tok": 1}
    kernel, loop = (step(config(tmp_path, **fields), device, 256) for device in ("cuda", "cpu"))
    own = sum(
        node.meta["flop"]
        for node in kernel.recording.graph.nodes
        if str(node.target).startswith("shardplan.delta_rule") and node.meta["phase"] == "forward"
    )
    rest = kernel.flop["forward"] - own
    assert own == pytest.approx(loop.flop["forward"] - rest, rel=0.35)


LIGER = f"""
from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss, LigerRMSNorm, LigerSwiGLUMLP
class Config:
    hidden_size, intermediate_size, hidden_act = {W}, {2 * W}, "silu"

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(4096, {W}), LigerRMSNorm({W})
        self.mlp, self.head = LigerSwiGLUMLP(Config), nn.Linear({W}, 4096, bias=False)
        self.loss = LigerFusedLinearCrossEntropyLoss()

    def forward(self, ids):
        x = self.table(ids)
        x = (x + self.mlp(self.norm(x))).flatten(0, 1)
        return self.loss(self.head.weight, x, ids.flatten())

Layer = None
"""


def test_a_fused_loss_keeps_gradients_and_no_logits(tmp_path: Path) -> None:
    found = step(written(tmp_path, LIGER))
    tokens, vocabulary = B * L, 4096
    rows = 2  # as many rows at once as make their logits as large as the inputs
    assert found.operators["liger_cross_entropy"] == tokens // rows
    products = 2 * tokens * W * vocabulary * 3 + 3 * 2 * tokens * W * 2 * W
    assert found.flop["forward"] == products  # the gradient of the head is computed in forward
    assert found.saved_bytes >= HALF * (vocabulary * W + tokens * W)
    assert found.peak_bytes < HALF * (2 * vocabulary * W) + 4 * tokens * vocabulary


def test_an_unknown_name_of_a_stand_in_is_named_with_what_is_known() -> None:
    with registered_operators("cuda"):
        with pytest.raises(UnknownNameError, match=r"flash_attn .*'flash_attn_4d_func'.*flash_attn_func"):
            importlib.import_module("flash_attn").flash_attn_4d_func  # noqa: B018
        with pytest.raises(ModuleNotFoundError, match=r"flash_attn\.nowhere"):
            importlib.import_module("flash_attn.nowhere")
    with registered_operators("cpu"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn")


def test_a_file_that_does_without_what_is_not_described_is_told_on(tmp_path: Path) -> None:
    body = """
try:
    from flash_attn.layers.rotary import RotaryEmbedding
except ImportError:
    RotaryEmbedding = None
"""
    source = written(tmp_path, body + PLAIN)
    assumed = fake_model(source, B, "bf16", L, "cuda").shadow.assumed
    assert [note.partition(" ")[0] for note in assumed] == ["flash_attn.layers.rotary.RotaryEmbedding"]


def test_an_installed_package_is_not_run_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "xformers"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "ops.py").write_text("def memory_efficient_attention(*_, **__):\n    raise RuntimeError('no GPU')\n")
    monkeypatch.syspath_prepend(tmp_path)
    call = "memory_efficient_attention(*qkv.unbind(2))"
    try:
        found = step(written(tmp_path, flash("memory_efficient_attention", call, "xformers.ops")))
    finally:
        for name in ("xformers", "xformers.ops"):
            sys.modules.pop(name, None)
    assert found.operators["flash_attention"] == DEPTH


def test_a_kernel_that_nobody_described_is_the_models_own_fallback_and_said_so(tmp_path: Path) -> None:
    body = """
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention as rule
class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.parts = nn.Linear(width, 4 * width)

    def forward(self, x):
        b, l, w = x.shape
        q, k, v, g = self.parts(x).view(b, l, 4, 2, w // 2).unbind(2)
        return rule(q, k, v, g=-g.float().sigmoid(), beta=g[..., 0].sigmoid())[0].reshape(b, l, w)
"""
    found = step(written(tmp_path, body))
    assert found.said("fla's chunk_kda has no registered operator")


def test_the_functions_are_those_of_the_package_by_name_and_order() -> None:
    names = flash_attn_func.__code__.co_varnames[: flash_attn_func.__code__.co_argcount]
    assert names[:6] == ("q", "k", "v", "dropout_p", "softmax_scale", "causal")


def test_an_operator_of_the_users_own_is_traced_as_the_docs_show(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "custom_kernels.md").read_text(encoding="utf-8")
    path = tmp_path / "own_kernel.py"
    path.write_text(page.split("```python\n")[1].split("```")[0])
    found = step(ModelSource(spec=f"{path}:model", kind="file"))
    tokens = B * L
    assert found.flop == {"forward": 2 * tokens * W * W, "backward": 4 * tokens * W * W}
    kept = HALF * tokens * W + 4 * tokens  # its input, and one number per row
    loss = HALF * tokens * W + 4 * tokens * W + 4  # the output until backward begins, its square's operand, the loss
    assert kept <= found.saved_bytes <= kept + loss


ROUND_TORCH = """
class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        product = x @ weight
        ctx.save_for_backward(product, weight, x)
        return product * product

    @staticmethod
    def backward(ctx, gradient):
        product, weight, x = ctx.saved_tensors
        inner = 2 * gradient * product
        return inner @ weight.t(), x.flatten(0, -2).t() @ inner.flatten(0, -2)

class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x):
        return Squared.apply(x, self.weight)
"""


def test_an_autograd_function_around_torchs_operators_is_traced_exactly(tmp_path: Path) -> None:
    source = written(tmp_path, ROUND_TORCH)
    found = step(source, "cpu", precision="fp32")
    model, batch = build(source.spec, source.kind, {}, B, L)
    model.train()
    saved = _saved_for_real(model, batch)
    assert found.saved_bytes == saved


def _saved_for_real(model: torch.nn.Module, batch: dict[str, Any]) -> int:
    """Bytes of all storages that forward leaves, parameters and inputs not counted."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *batch.values())}
    alive: dict[int, weakref.ref[Any]] = {}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            for tensor in tree_leaves(made):
                if isinstance(tensor, torch.Tensor):
                    storage = tensor.untyped_storage()
                    alive[storage._cdata] = weakref.ref(storage)
            return made

    with Watch():
        loss = model(**batch)
    storages = [found for found in (watch() for watch in alive.values()) if found is not None]
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in storages if storage.data_ptr() not in own)


def test_a_raw_kernel_is_refused_with_what_to_do(tmp_path: Path) -> None:
    layer = """
class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        address = x.data_ptr()
        assert address
        return x * self.weight
"""
    with pytest.raises(TraceError, match=r"layers\.0.*written\.py.*custom_kernels\.md"):
        trace(written(tmp_path, layer), precision="bf16", device="cuda", sequence_length=L, way="fake")


@pytest.mark.parametrize(
    ("layer", "kernels"),
    [
        ("Mamba(width, d_state=8)", "selective_scan"),
        ("Mamba2(width, d_state=16, headdim=16, chunk_size=32)", "chunk_scan"),
    ],
)
def test_models_made_of_mamba_ssms_layers_are_traced_without_it(layer: str, kernels: str, tmp_path: Path) -> None:
    found = step(written(tmp_path, f"from mamba_ssm import Mamba, Mamba2\n\ndef Layer(width):\n    return {layer}\n"))
    assert found.operators[kernels] == DEPTH
    assert found.flop["backward"] > 1.5 * found.flop["forward"]


def test_a_layer_of_mamba_ssm_that_is_not_described_is_refused(tmp_path: Path) -> None:
    body = "from mamba_ssm import Mamba2\n\ndef Layer(width):\n    return Mamba2(width, d_ssm=32)\n"
    with pytest.raises(NotImplementedError, match="d_ssm=32"):
        step(written(tmp_path, body))
