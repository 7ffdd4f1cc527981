"""Autocast: CUDA's rules on CPU tensors operator by operator, and whole steps under the CPU's own."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from dispatched import step
from torch import nn
from torch.nn import functional

from planner.model_graph import ModelSource
from planner.trace.fake.fake_model import fake_model
from planner.trace.kernels.autocast import autocast_region, autocast_rules
from planner.trace.kernels.autocast_lists import CUDA_POLICIES, FP32, FP32_NORM, FP32_RESULT, LOWER, PROMOTE
from planner.trace.kernels.autocast_policies import RefusedUnderAutocastError
from planner.trace.record.liveness import all_events, peak_bytes
from planner.trace.record.record_step import record_step
from runtime.load_model import build, loss_of

aten = torch.ops.aten
BF16, FP32_TYPE = torch.bfloat16, torch.float32


def _names_with_kernels(key: str) -> set[str]:
    names = torch._C._dispatch_get_all_op_names()
    found = [name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]
    return {name.removeprefix("aten::") for name in found if name.startswith("aten::")}


def test_the_lists_are_those_that_torch_registers_for_cuda() -> None:
    assert _names_with_kernels("AutocastCUDA") == set(CUDA_POLICIES)
    assert len(CUDA_POLICIES) == sum(len(names) for names in (LOWER, FP32, FP32_RESULT, FP32_NORM, PROMOTE)) + 1


def test_torch_has_its_own_rules_back_afterwards() -> None:
    before = _names_with_kernels("AutocastCPU")
    with autocast_rules("cuda"):
        assert _names_with_kernels("AutocastCPU") != before
    assert _names_with_kernels("AutocastCPU") == before
    with autocast_region("bf16"):
        assert torch.softmax(torch.randn(3, 3).bfloat16(), -1).dtype == BF16


def _halves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.rand(shape).bfloat16() for shape in shapes]


def _floats(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.rand(shape) for shape in shapes]


_IMAGE, _KERNEL = (1, 2, 4, 4), (2, 2, 3, 3)
_LOWER_CALLS: dict[str, list[Any]] = {
    "conv1d": _floats((1, 2, 5), (2, 2, 3)),
    "conv2d": _floats(_IMAGE, _KERNEL),
    "conv3d": _floats((1, 2, 4, 4, 4), (2, 2, 3, 3, 3)),
    "conv_tbc": _floats((5, 1, 2), (3, 2, 2), (2,)),
    "conv_transpose1d": _floats((1, 2, 5), (2, 2, 3)),
    "conv_transpose2d.input": _floats(_IMAGE, _KERNEL),
    "conv_transpose3d.input": _floats((1, 2, 4, 4, 4), (2, 2, 3, 3, 3)),
    "convolution": [*_floats(_IMAGE, _KERNEL), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1],
    "prelu": _floats((3, 3), (1,)),
    "addmm": _floats((3,), (3, 3), (3, 3)),
    "addmv": _floats((3,), (3, 3), (3,)),
    "addr": _floats((3, 3), (3,), (3,)),
    "matmul": _floats((3, 3), (3, 3)),
    "einsum": ["ij,jk->ik", _floats((3, 3), (3, 3))],
    "mm": _floats((3, 3), (3, 3)),
    "mv": _floats((3, 3), (3,)),
    "linalg_vecdot": _floats((3, 3), (3, 3)),
    "linear": _floats((3, 3), (3, 3)),
    "addbmm": _floats((3, 3), (2, 3, 3), (2, 3, 3)),
    "baddbmm": _floats((2, 3, 3), (2, 3, 3), (2, 3, 3)),
    "bmm": _floats((2, 3, 3), (2, 3, 3)),
    "chain_matmul": [_floats((3, 3), (3, 3))],
    "linalg_multi_dot": [_floats((3, 3), (3, 3), (3, 3))],
    "rnn_tanh_cell": _floats((2, 3), (2, 3), (3, 3), (3, 3)),
    "rnn_relu_cell": _floats((2, 3), (2, 3), (3, 3), (3, 3)),
    "gru_cell": _floats((2, 3), (2, 3), (9, 3), (9, 3)),
    "lstm_cell": [_floats((2, 3), (1,))[0], _floats((2, 3), (2, 3)), *_floats((12, 3), (12, 3))],
    "scaled_dot_product_attention": _floats((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
}
_TARGET = torch.ones(3)
_CLASSES = torch.tensor([0, 2, 1])
_FP32_CALLS: dict[str, list[Any]] = {
    **{
        name: _halves((3, 3))
        for name in FP32
        if name
        in {
            *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal"),
            *("rsqrt", "sinh", "tan", "softplus", "nuclear_norm", "pdist"),
        }
    },
    "pow.Tensor_Scalar": [*_halves((3, 3)), 2],
    "pow.Tensor_Tensor": _halves((3, 3), (3, 3)),
    "pow.Scalar": [2, *_halves((3, 3))],
    "layer_norm": [*_halves((3, 3)), [3]],
    "native_layer_norm": [*_halves((3, 3)), [3], None, None, 1e-5],
    "rms_norm": [*_halves((3, 3)), [3]],
    "group_norm": [*_halves((3, 4)), 2],
    "frobenius_norm.dim": [*_halves((3, 3)), [0]],
    "nuclear_norm.dim": [*_halves((3, 3)), [0, 1]],
    "cosine_similarity": _halves((3, 3), (3, 3)),
    "poisson_nll_loss": [*_halves((3,), (3,)), True, False, 1e-8, 1],
    "cosine_embedding_loss": [*_halves((3, 3), (3, 3)), _TARGET],
    "nll_loss": [*_halves((3, 3)), _CLASSES],
    "nll_loss2d": [*_halves((3, 3, 2, 2)), torch.zeros(3, 2, 2, dtype=torch.int64)],
    "hinge_embedding_loss": [*_halves((3,)), _TARGET],
    "kl_div": _halves((3, 3), (3, 3)),
    "l1_loss": _halves((3, 3), (3, 3)),
    "smooth_l1_loss": _halves((3, 3), (3, 3)),
    "huber_loss": _halves((3, 3), (3, 3)),
    "mse_loss": _halves((3, 3), (3, 3)),
    "margin_ranking_loss": [*_halves((3,), (3,)), _TARGET],
    "multilabel_margin_loss": [*_halves((3, 3)), torch.zeros(3, 3, dtype=torch.int64)],
    "soft_margin_loss": _halves((3, 3), (3, 3)),
    "triplet_margin_loss": _halves((3, 3), (3, 3), (3, 3)),
    "multi_margin_loss": [*_halves((3, 3)), _CLASSES],
    "binary_cross_entropy_with_logits": _halves((3, 3), (3, 3)),
    "dist": _halves((3, 3), (3, 3)),
    "cdist": _halves((3, 3), (3, 3)),
    "renorm": [*_halves((3, 3)), 2, 0, 1.0],
    "logsumexp": [*_halves((3, 3)), [0]],
    "upsample_nearest1d": [*_halves((1, 2, 4)), [8]],
    "_upsample_nearest_exact1d": [*_halves((1, 2, 4)), [8]],
    "upsample_nearest2d": [*_halves(_IMAGE), [8, 8]],
    "_upsample_nearest_exact2d": [*_halves(_IMAGE), [8, 8]],
    "upsample_nearest3d": [*_halves((1, 2, 4, 4, 4)), [8, 8, 8]],
    "_upsample_nearest_exact3d": [*_halves((1, 2, 4, 4, 4)), [8, 8, 8]],
    "upsample_linear1d": [*_halves((1, 2, 4)), [8], False],
    "upsample_bilinear2d": [*_halves(_IMAGE), [8, 8], False],
    "_upsample_bilinear2d_aa": [*_halves(_IMAGE), [8, 8], False],
    "upsample_trilinear3d": [*_halves((1, 2, 4, 4, 4)), [8, 8, 8], False],
    "upsample_bicubic2d": [*_halves(_IMAGE), [8, 8], False],
    "_upsample_bicubic2d_aa": [*_halves(_IMAGE), [8, 8], False],
}
_RESULT_CALLS: dict[str, list[Any]] = {
    "prod": _halves((3, 3)),
    "prod.dim_int": [*_halves((3, 3)), 0],
    "softmax.int": [*_halves((3, 3)), 0],
    "log_softmax.int": [*_halves((3, 3)), 0],
    "cumprod": [*_halves((3, 3)), 0],
    "cumsum": [*_halves((3, 3)), 0],
    "linalg_vector_norm": _halves((3, 3)),
    "linalg_matrix_norm": [*_halves((3, 3)), 1],
    "linalg_matrix_norm.str_ord": _halves((3, 3)),
    "sum": _halves((3, 3)),
    "sum.dim_IntList": [*_halves((3, 3)), [0]],
    "norm.Scalar": _halves((3, 3)),
    "norm.ScalarOpt_dim": [*_halves((3, 3)), 2, [0]],
}
_PROMOTE_CALLS: dict[str, list[Any]] = {
    "addcdiv": _floats((3,), (3,), (3,)),
    "addcmul": _floats((3,), (3,), (3,)),
    "atan2": _floats((3,), (3,)),
    "bilinear": _floats((2, 3), (2, 3), (4, 3, 3)),
    "cross": _floats((3,), (3,)),
    "dot": _floats((3,), (3,)),
    "vdot": _floats((3,), (3,)),
    "grid_sampler": [*_floats(_IMAGE, (1, 2, 2, 2)), 0, 0, False],
    "index_put": [_floats((3,))[0], [_CLASSES], *_floats((3,))],
    "tensordot": [*_floats((3, 3), (3, 3)), [1], [0]],
    "scatter_add": [_floats((3,))[0], 0, _CLASSES, *_floats((3,))],
}
NOT_CALLED = {
    # For cuDNN's tensors, or beneath operators that are called.
    *("cudnn_convolution", "cudnn_convolution_transpose", "_convolution", "_convolution.deprecated"),
    *("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "_scaled_dot_product_flash_attention"),
    "binary_cross_entropy",  # refused
}


def test_every_operator_of_the_lists_is_called_by_the_tests_below() -> None:
    called = {*_LOWER_CALLS, *_FP32_CALLS, *_RESULT_CALLS, *_PROMOTE_CALLS}
    assert called | NOT_CALLED == set(CUDA_POLICIES)
    assert not called & NOT_CALLED


def _types(calls: dict[str, list[Any]]) -> dict[str, torch.dtype]:
    with autocast_rules("cuda"), autocast_region("bf16"):
        return {name: _type(name, args) for name, args in calls.items()}


def _type(name: str, args: list[Any]) -> torch.dtype:
    packet, _, overload = name.partition(".")
    result = getattr(getattr(aten, packet), overload or "default")(*args)
    first: torch.Tensor = result[0] if isinstance(result, tuple | list) else result
    return first.dtype


def test_products_run_in_the_lower_type() -> None:
    assert _types(_LOWER_CALLS) == dict.fromkeys(_LOWER_CALLS, BF16)


def test_what_is_sensitive_runs_in_fp32() -> None:
    assert _types(_FP32_CALLS) == dict.fromkeys(_FP32_CALLS, FP32_TYPE)


def test_sums_and_norms_give_fp32() -> None:
    assert _types(_RESULT_CALLS) == dict.fromkeys(_RESULT_CALLS, FP32_TYPE)


def test_a_type_that_the_caller_gives_is_kept() -> None:
    with autocast_rules("cuda"), autocast_region("bf16"):
        assert torch.softmax(torch.rand(3, 3), 0, dtype=BF16).dtype == BF16
        assert torch.sum(torch.rand(3, 3), dtype=BF16).dtype == BF16
        # Whole numbers are none of autocast's business.
        assert torch.cumsum(torch.ones(3, dtype=torch.int32), 0).dtype == torch.int64


def _is_float(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and arg.is_floating_point()


def _lowered(args: list[Any], keep_first: bool) -> list[Any]:
    floats = [place for place, arg in enumerate(args) if _is_float(arg)]
    lowered = floats[1:] if keep_first else floats
    return [arg.bfloat16() if place in lowered else arg for place, arg in enumerate(args)]


def test_what_takes_several_floats_takes_the_widest() -> None:
    assert _types(_PROMOTE_CALLS) == dict.fromkeys(_PROMOTE_CALLS, FP32_TYPE)
    lower = {name: _lowered(args, keep_first=False) for name, args in _PROMOTE_CALLS.items()}
    assert _types(lower) == dict.fromkeys(_PROMOTE_CALLS, BF16)
    mixed = {name: _lowered(args, keep_first=True) for name, args in _PROMOTE_CALLS.items()}
    assert _types(mixed) == dict.fromkeys(_PROMOTE_CALLS, FP32_TYPE)


def test_what_only_the_cpu_casts_is_left_alone() -> None:
    # Cross-entropy is in the CPU's list as a whole; on CUDA its parts are.
    logits = torch.rand(4, 5).bfloat16()
    with autocast_rules("cuda"), autocast_region("bf16"):
        assert functional.cross_entropy(logits, torch.zeros(4, dtype=torch.int64)).dtype == FP32_TYPE
        assert functional.pad(torch.rand(1, 2, 4).bfloat16(), (1, 1), mode="reflect").dtype == BF16
        assert torch.relu(logits).dtype == BF16
        with pytest.raises(RefusedUnderAutocastError, match="binary_cross_entropy_with_logits"):
            functional.binary_cross_entropy(torch.rand(3), torch.rand(3))


def test_regions_of_a_model_for_cuda_are_regions() -> None:
    with autocast_rules("cuda"), autocast_region("fp16"):
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == torch.float16
        with torch.autocast("cuda", enabled=False):
            assert not torch.is_autocast_enabled()
            assert torch.mm(*_floats((3, 3), (3, 3))).dtype == FP32_TYPE
        with torch.autocast(device_type="cuda", dtype=BF16):
            assert torch.mm(*_floats((3, 3), (3, 3))).dtype == BF16
    with autocast_rules("cuda"), torch.autocast("cuda"):
        assert torch.mm(*_floats((3, 3), (3, 3))).dtype == torch.float16


def test_a_function_of_ones_own_casts_its_inputs_as_it_says() -> None:
    seen = []

    class Half(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen.append((x.dtype, torch.is_autocast_enabled("cuda")))
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    with autocast_rules("cuda"):
        x = torch.rand(3, requires_grad=True)
        with autocast_region("bf16"):
            loss = Half.apply(x).float().sum()  # type: ignore[no-untyped-call]
        loss.backward()
        Half.apply(x)  # type: ignore[no-untyped-call]
    # Cast inputs run outside of autocast; where there is none, they stay what they are.
    assert seen == [(torch.float16, False), (FP32_TYPE, False)]
    assert x.grad is not None and x.grad.dtype == FP32_TYPE


def test_a_parameter_is_cast_once_for_all_its_uses_until_the_region_ends() -> None:
    layer = nn.Linear(4, 4, bias=False)

    def twice(x: torch.Tensor) -> torch.Tensor:
        with autocast_region("bf16"):
            x = torch.einsum("bi,oi->bo", x, layer.weight)
            return functional.linear(x, layer.weight)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return twice(x)

    with autocast_rules("cuda"):
        operators = step(Twice(), (torch.randn(3, 4),), lambda y: y.float().sum()).operators
    casts = [results[0] for name, results in operators if name == "aten::_to_copy"]
    assert sum(result.shape == (4, 4) and result.dtype == BF16 for result in casts) == 1


CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 2},
    "bert": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "architectures": ["BertForMaskedLM"]},
    "vit": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "image_size": 32,
        "patch_size": 8,
        "architectures": ["ViTForImageClassification"],
    },
}
CNN = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first = nn.BatchNorm2d(width)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x + self.second(self.two(self.relu(self.first(self.one(x))))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(True), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x, labels):
        x = self.blocks(self.stem(x)).mean((2, 3))
        return nn.functional.cross_entropy(self.head(x), labels)

def make(micro_batch_size):
    x = torch.randn(micro_batch_size, 3, 32, 32)
    return Net(), {'x': x, 'labels': torch.zeros(micro_batch_size, dtype=torch.int64)}
"""


def _source(name: str, folder: Path) -> ModelSource:
    if name == "cnn":
        (folder / "cnn.py").write_text(CNN)
        return ModelSource(spec=f"{folder / 'cnn.py'}:make", kind="file")
    fields = {"model_type": name, "vocab_size": 100, "num_attention_heads": 4, **CONFIGS[name]}
    (folder / "config.json").write_text(json.dumps(fields))
    return ModelSource(spec=str(folder / "config.json"), kind="hf_config")


class _Step(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        with autocast_region("bf16"):
            return loss_of(self.module(**batch))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*CONFIGS, "cnn"])
def test_a_step_under_the_cpus_autocast_saves_what_a_real_one_does(name: str, tmp_path: Path) -> None:
    source = _source(name, tmp_path)
    length = None if name in ("vit", "cnn") else 16
    recording = record_step(fake_model(source, 2, "fp32", length), "cpu", "bf16")
    module, batch = build(source.spec, source.kind, source.arguments, 2, length)
    step(_Step(module.train()), (batch,), lambda loss: loss)  # The first call fills what is kept for all.
    module.zero_grad()
    real = step(_Step(module), (batch,), lambda loss: loss)
    events = all_events(recording)
    # Backward begins with the gradient of the loss, before autograd's first derivative.
    first = min(n.meta["index"] for n in recording.graph.nodes if n.target is aten.ones_like.default)
    saved = sum(event.delta_bytes for event in events if event.operator < first)
    assert saved == real.saved_bytes
    assert peak_bytes(events) == real.peak_bytes


def test_casts_of_parameters_are_marked_and_saved(tmp_path: Path) -> None:
    recording = record_step(fake_model(_source("cnn", tmp_path), 2, "fp32", None), "cpu", "bf16")
    casts = [node for node in recording.graph.nodes if "param_cast" in node.meta]
    assert {node.meta["param_cast"] for node in casts} >= {"stem.0.weight", "blocks.0.one.weight", "head.weight"}
    died = {event.storage: event.operator for event in recording.events if event.delta_bytes < 0}
    backward = min(n.meta["index"] for n in recording.graph.nodes if n.meta.get("phase") == "backward")
    weights = [node for node in casts if node.meta["param_cast"].endswith("weight")]
    assert weights and all(died.get(node.meta["storage"], backward) >= backward for node in weights)
