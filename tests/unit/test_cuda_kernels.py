"""The kernels of CUDA on fake CPU tensors: which are chosen, and what they save."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from dispatched import Dispatched, step
from module_cases import CASES
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from planner.model_graph import ModelSource
from planner.trace.fake.fake_model import fake_model
from planner.trace.fake.fake_world import fake_world
from planner.trace.fake.shadow import Shadow
from planner.trace.kernels.attention_choice import AttentionCall, CudaTarget, NoAttentionKernelError, attention_kernel
from planner.trace.kernels.autocast import autocast_region, autocast_rules
from planner.trace.kernels.cpu_kernels import cpu_kernels
from planner.trace.kernels.cuda_kernels import cuda_kernels
from planner.trace.kernels.cuda_recurrence import RESERVE_NOTE
from planner.trace.kernels.flex_attention import FLEX_NOTE
from planner.trace.kernels.recurrence_results import cudnn_reserve_bytes
from planner.trace.record.record_step import record_step

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def _tensor(*shape: int, dtype: torch.dtype = BF16, grad: bool = True) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def _call(
    heads: tuple[int, int] = (4, 4),
    lengths: tuple[int, int] = (16, 16),
    sizes: tuple[int, int] = (64, 64),
    dtype: torch.dtype = BF16,
    **others: Any,
) -> AttentionCall:
    query = _tensor(2, heads[0], lengths[0], sizes[0], dtype=dtype)
    key, value = (_tensor(2, heads[1], lengths[1], size, dtype=dtype) for size in sizes)
    return AttentionCall(query, key, value, **others)


MASK = _tensor(2, 1, 16, 16, grad=False)


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        (_call(), "flash"),
        (_call(dtype=FP16, dropout=0.1, is_causal=True), "flash"),
        (_call(dtype=FP32), "efficient"),
        (_call(dtype=torch.float64), "math"),
        # Heads: up to 256 wide, of any size for flash, equal for queries and values.
        (_call(sizes=(256, 256)), "flash"),
        (_call(sizes=(264, 264)), "efficient"),
        (_call(sizes=(50, 50)), "flash"),
        (_call(sizes=(50, 50), dtype=FP32), "math"),
        (_call(sizes=(52, 52), dtype=FP32), "efficient"),
        (_call(sizes=(192, 128)), "efficient"),
        (_call(sizes=(100, 100), mask=MASK), "math"),
        # Masks are for the memory-efficient kernel.
        (_call(mask=MASK), "efficient"),
        (_call(mask=MASK.bool()), "efficient"),
        # Grouped queries are for flash alone, and must be asked for.
        (_call(heads=(8, 2), enable_gqa=True), "flash"),
        (_call(heads=(8, 2), enable_gqa=True, dtype=FP32), "math"),
        (_call(heads=(8, 2), enable_gqa=True, mask=MASK), "math"),
        (_call(heads=(8, 3), enable_gqa=True), "math"),
        # Lengths: a causal mask of flash is for squares; nothing fused takes an empty sequence.
        (_call(lengths=(16, 32)), "flash"),
        (_call(lengths=(16, 32), is_causal=True), "efficient"),
        (_call(lengths=(16, 0)), "math"),
        (_call(lengths=(0, 16)), "math"),
        # Batches must be equal, types too, and rows contiguous.
        (AttentionCall(_tensor(2, 4, 16, 64), _tensor(1, 4, 16, 64), _tensor(1, 4, 16, 64)), "math"),
        (AttentionCall(_tensor(2, 4, 16, 64), _tensor(2, 4, 16, 64, dtype=FP16), _tensor(2, 4, 16, 64)), "math"),
        (AttentionCall(_tensor(2, 4, 64, 16).mT, _tensor(2, 4, 16, 64), _tensor(2, 4, 16, 64)), "math"),
        (AttentionCall(_tensor(4, 16, 64), _tensor(4, 16, 64), _tensor(4, 16, 64)), "math"),
    ],
)
def test_attention_takes_the_first_kernel_that_can(call: AttentionCall, kernel: str) -> None:
    assert attention_kernel(call) == kernel


def test_the_choice_depends_on_the_gpu() -> None:
    wide = _call(sizes=(208, 208))
    assert attention_kernel(wide, CudaTarget((8, 0))) == "flash"
    assert attention_kernel(wide, CudaTarget((8, 6))) == "efficient"
    assert attention_kernel(_call(sizes=(256, 256)), CudaTarget((8, 9))) == "flash"
    assert attention_kernel(_call(sizes=(256, 256), dropout=0.1), CudaTarget((8, 9))) == "efficient"
    assert attention_kernel(_call(dtype=FP16), CudaTarget((7, 5))) == "efficient"
    assert attention_kernel(_call(), CudaTarget((7, 5))) == "math"
    with torch.no_grad():
        frozen = _tensor(2, 4, 16, 208, grad=False)
    assert attention_kernel(AttentionCall(frozen, frozen, frozen), CudaTarget((8, 6))) == "flash"


def test_cudnn_comes_first_where_torch_prefers_it() -> None:
    hopper = CudaTarget((9, 0), 91900)
    assert attention_kernel(_call(), hopper) == "cudnn"
    assert attention_kernel(_call(mask=MASK), hopper) == "cudnn"
    assert attention_kernel(_call(sizes=(192, 128)), hopper) == "cudnn"
    assert attention_kernel(_call(heads=(8, 2), enable_gqa=True), hopper) == "cudnn"
    assert attention_kernel(_call(sizes=(256, 256)), hopper) == "flash"
    assert attention_kernel(_call(dropout=0.1), hopper) == "flash"
    assert attention_kernel(_call(dropout=0.125), hopper) == "cudnn"
    assert attention_kernel(_call(dtype=FP32), hopper) == "efficient"
    assert attention_kernel(_call(), CudaTarget((9, 0), 91002)) == "flash"
    assert attention_kernel(_call(), CudaTarget((8, 0), 91900)) == "flash"


def test_the_users_choice_of_kernels_is_followed() -> None:
    with sdpa_kernel(SDPBackend.MATH):
        assert attention_kernel(_call()) == "math"
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        assert attention_kernel(_call()) == "efficient"
        with pytest.raises(NoAttentionKernelError, match="turned off"):
            attention_kernel(_call(heads=(8, 2), enable_gqa=True))
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert attention_kernel(_call()) == "math"


@contextmanager
def _on_cuda(autocast: Any = None, target: CudaTarget | None = None) -> Iterator[list[str]]:
    mode = FakeTensorMode()
    rules = autocast_rules("cuda")
    with fake_world(mode, Shadow(mode)), rules, cuda_kernels(target) as notes, autocast_region(autocast):
        yield notes


def _loss(output: Any) -> torch.Tensor:
    floats = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return sum((leaf.float().square().mean() for leaf in floats), start=torch.zeros(()))


class _Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, mask, **self.options)


def _attended(shape: tuple[int, ...], dtype: torch.dtype, mask: Any = None, **options: Any) -> Dispatched:
    with _on_cuda():
        operands = [torch.empty(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
        operands += [] if mask is None else [torch.zeros(mask[0], dtype=mask[1])]
        return step(_Attention(**options), tuple(operands), _loss)


def _names(dispatched: Dispatched) -> list[str]:
    return [name.removeprefix("aten::") for name, _ in dispatched.operators]


LOSS_BYTES = 3 * 4
"""Of the sum over the outputs: its beginning, the mean and the sum."""


def test_flash_saves_output_and_one_number_per_row() -> None:
    attended = _attended((2, 4, 16, 64), BF16)
    elements, rows = 2 * 4 * 16 * 64, 2 * 4 * 16
    seeds = 2 * 8
    # Output in bf16 and as the loss casts it to fp32, statistics in fp32, the seed and offset of a generator.
    assert attended.saved_bytes <= elements * 2 + elements * 4 + rows * 4 + seeds + LOSS_BYTES
    assert attended.saved_bytes >= elements * 2 + elements * 4 + rows * 4
    assert "_scaled_dot_product_flash_attention_backward" in _names(attended)


def test_scores_are_not_kept_where_a_kernel_is_fused() -> None:
    fused = _attended((1, 2, 256, 16), FP32)
    with sdpa_kernel(SDPBackend.MATH):
        plain = _attended((1, 2, 256, 16), FP32)
    scores = 2 * 256 * 256 * 4
    assert plain.saved_bytes - fused.saved_bytes > 0.9 * scores
    assert fused.peak_bytes < scores


def test_odd_heads_are_padded_for_flash_and_cut_again() -> None:
    attended = _attended((2, 4, 16, 50), BF16)
    pads = [results[0].shape for name, results in attended.operators if name == "aten::constant_pad_nd"]
    assert pads[:3] == [(2, 4, 16, 56)] * 3
    flash = next(r for name, r in attended.operators if name == "aten::_scaled_dot_product_flash_attention")
    assert flash[0].shape == (2, 4, 16, 56)


def test_a_mask_of_booleans_becomes_floats_in_every_call() -> None:
    attended = _attended((2, 4, 16, 64), BF16, ((2, 1, 16, 16), torch.bool))
    floats = [r[0] for name, r in attended.operators if "::where" in name and r[0].shape == (2, 1, 16, 16)]
    assert [result.dtype for result in floats] == [BF16]
    assert "_scaled_dot_product_efficient_attention" in _names(attended)
    # Rows of 20 numbers do not begin at aligned addresses: they are padded to 32.
    odd = _attended((2, 4, 20, 64), BF16, ((2, 1, 20, 20), BF16))
    assert [r[0].shape for name, r in odd.operators if name == "aten::constant_pad_nd"][:1] == [(2, 1, 20, 32)]


@pytest.mark.parametrize(("dtype", "target"), [(BF16, CudaTarget((9, 0), 91900)), (FP32, CudaTarget())])
def test_every_kernel_runs_backward(dtype: torch.dtype, target: CudaTarget) -> None:
    with _on_cuda(target=target):
        operands = tuple(torch.empty(2, 4, 16, 64, dtype=dtype, requires_grad=True) for _ in range(3))
        attended = step(_Attention(), operands, _loss)
    kernel = "cudnn" if dtype == BF16 else "efficient"
    assert f"_scaled_dot_product_{kernel}_attention_backward" in _names(attended)


def test_names_that_a_model_bound_and_torchs_own_calls_take_the_same_kernels() -> None:
    bound = torch._C._nn.scaled_dot_product_attention

    class Bound(nn.Module):
        def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            return torch.dropout(bound(query, key, value), 0.1, True)

    with _on_cuda():
        operands = tuple(torch.empty(2, 4, 16, 64, dtype=BF16, requires_grad=True) for _ in range(3))
        names = _names(step(Bound(), operands, _loss))
    assert "_scaled_dot_product_flash_attention" in names and "native_dropout" in names
    with _on_cuda():
        layer = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True).train()
        x = torch.empty(2, 5, 8, requires_grad=True)
        plain = _names(step(layer, (x, x, x), _loss))
        # Weights that are asked for are computed in the open; else attention is fused.
        fused = _names(step(_WithoutWeights(layer), (x,), _loss))
    assert "native_dropout" in plain and not any("scaled_dot" in name for name in plain)
    assert "_scaled_dot_product_efficient_attention" in fused


class _WithoutWeights(nn.Module):
    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]  # type: ignore[no-any-return]


def test_what_a_checkpoint_runs_again_takes_the_same_kernels() -> None:
    class Again(nn.Module):
        def forward(self, *operands: torch.Tensor) -> torch.Tensor:
            attended = checkpoint(functional.scaled_dot_product_attention, *operands, use_reentrant=False)
            return functional.dropout(attended, 0.1)

    with _on_cuda():
        operands = tuple(torch.empty(2, 4, 16, 64, dtype=BF16, requires_grad=True) for _ in range(3))
        names = _names(step(Again(), operands, _loss))
    assert names.count("_scaled_dot_product_flash_attention") == 2


def test_flexible_attention_is_one_operator_that_keeps_output_and_one_number_per_row() -> None:
    class Flexible(nn.Module):
        def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
            return flex_attention(query * 1, key, value, block_mask=mask).sum()

    with _on_cuda() as notes:
        operands = tuple(torch.empty(2, 4, 128, 16, dtype=BF16, requires_grad=True) for _ in range(3))
        dispatched = step(Flexible(), operands, lambda loss: loss)
    assert notes == [FLEX_NOTE]
    rows = 2 * 4 * 128
    # The query that was made, the output, a number in fp32 for each row, and the loss.
    assert dispatched.saved_bytes == 2 * rows * 16 * 2 + rows * 4 + 2
    assert "shardplan_flex::flex_attention_backward" in _names(dispatched)


@pytest.mark.parametrize(
    ("module", "mask_bytes"),
    [
        (nn.Dropout(0.1), 12 * 1),
        # In place, and of whole channels, CUDA has no fused kernel either.
        (nn.Dropout(0.1, inplace=True), 12 * 4),
        (nn.Dropout1d(0.1), 3 * 4),
        (nn.Dropout(0.0), 0),
        (nn.Dropout(0.1).eval(), 0),
    ],
)
def test_a_dropout_saves_a_mask_of_bytes_where_it_is_fused(module: nn.Module, mask_bytes: int) -> None:
    class After(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.module(x + 0).sum()  # type: ignore[no-any-return]

    with _on_cuda():
        saved = step(After(), (torch.empty(1, 3, 4, requires_grad=True),), lambda loss: loss).saved_bytes
    # Beside the mask: the loss, and of x + 0 nothing.
    assert saved == mask_bytes + 4


def test_a_root_mean_square_norm_is_one_kernel_that_keeps_its_input_and_one_number_per_row() -> None:
    class After(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(64, dtype=BF16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x * 2).sum()  # type: ignore[no-any-return]

    with _on_cuda():
        dispatched = step(After(), (torch.empty(8, 64, dtype=BF16, requires_grad=True),), lambda loss: loss)
    assert dispatched.saved_bytes == 8 * 64 * 2 + 8 * 4 + 2
    assert "_fused_rms_norm_backward" in _names(dispatched)


def test_small_tensors_of_known_values_take_the_same_kernels() -> None:
    with _on_cuda():
        known = torch.ones(1, 1, 4, 8, dtype=BF16)
        attended = functional.scaled_dot_product_attention(known, known, known)
        normed = functional.rms_norm(torch.ones(2, 4), (4,))
        dropped = functional.dropout(torch.ones(2, 4), 0.5)
        hidden = nn.LSTM(4, 5)(torch.ones(3, 1, 4))[0]
    assert [tensor.shape for tensor in (attended, normed, dropped, hidden)] == [(1, 1, 4, 8), (2, 4), (2, 4), (3, 1, 5)]


def test_statistics_of_norms_are_fp32() -> None:
    with _on_cuda():
        layer = step(nn.LayerNorm(64, dtype=BF16), (torch.empty(8, 64, dtype=BF16, requires_grad=True),), _loss)
        batch = step(nn.BatchNorm2d(4, dtype=BF16), (torch.empty(2, 4, 3, 3, dtype=BF16, requires_grad=True),), _loss)
    for dispatched, name in ((layer, "aten::native_layer_norm"), (batch, "aten::native_batch_norm")):
        results = next(results for operator, results in dispatched.operators if operator == name)
        assert [result.dtype for result in results] == [BF16, FP32, FP32]


def test_half_precision_softmax_under_autocast_makes_no_copy_of_its_input() -> None:
    with _on_cuda("fp16"):
        operators = step(nn.Softmax(-1), (torch.empty(4, 4, dtype=FP16, requires_grad=True),), _loss).operators
    softmax = next(place for place, (name, _) in enumerate(operators) if name == "aten::_softmax")
    assert operators[softmax][1][0].dtype == FP32
    assert "aten::_to_copy" not in [name for name, _ in operators[:softmax]]


@pytest.mark.parametrize("autocast", [None, "fp16"])
@pytest.mark.filterwarnings("ignore")
def test_a_step_of_every_module_runs_by_cudas_kernels(autocast: Any) -> None:
    failed = {}
    with _on_cuda(autocast):
        for name, (make, inputs) in CASES.items():
            try:
                step(make().train(), inputs(), _loss)
            except Exception as error:
                failed[name] = type(error).__name__
    assert failed == ({} if autocast is None else {"BCELoss": "RefusedUnderAutocastError"})


RECURRENT = {"LSTM": 5, "GRU": 6, "RNN": 2}
"""Numbers that cuDNN is taken to keep per unit and token."""


@pytest.mark.parametrize("kind", RECURRENT)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_recurrent_layer_is_one_operator_of_cudnn(kind: str, bidirectional: bool, batch_first: bool) -> None:
    with _on_cuda() as notes:
        module = getattr(nn, kind)(4, 5, 3, bidirectional=bidirectional, batch_first=batch_first)
        source = torch.empty((7, 2, 4) if not batch_first else (2, 7, 4), requires_grad=True)
        dispatched = step(module, (source,), _loss)
    assert notes == [RESERVE_NOTE]
    layers = [results for name, results in dispatched.operators if name == "aten::_cudnn_rnn"]
    directions = 2 if bidirectional else 1
    assert len(layers) == 1
    output, hidden, cell, reserve = layers[0][:4]
    assert output.shape == ((2, 7) if batch_first else (7, 2)) + (5 * directions,)
    assert hidden.shape == (3 * directions, 2, 5)
    assert cell.shape == ((3 * directions, 2, 5) if kind == "LSTM" else (0,))
    units = 7 * 2 * 5 * directions
    assert reserve.storage_bytes == (RECURRENT[kind] * units * 3 + units * 2) * 4
    # All gradients of the weights are parts of one buffer.
    gradients = next(results for name, results in dispatched.operators if name == "aten::_cudnn_rnn_backward")
    assert {result.storage_bytes for result in gradients[-len(list(module.parameters())) :]} == {
        sum(parameter.numel() for parameter in module.parameters()) * 4
    }


def test_the_estimate_of_what_cudnn_keeps_is_what_was_measured() -> None:
    # pytorch issue 2895: 4 layers of 320 units in fp32, 123 features, 25,000 tokens.
    tokens = torch.empty(500, 50, 123, device="meta")
    call = {"input": tokens, "hidden_size": 320, "num_layers": 4, "bidirectional": False, "dropout": 0.0}
    assert cudnn_reserve_bytes({**call, "mode": 2}) == 736_000_000
    assert cudnn_reserve_bytes({**call, "mode": 3}) == 864_000_000


def test_autocast_casts_all_weights_of_a_recurrent_layer_into_one_buffer_that_is_kept() -> None:
    with _on_cuda("fp16"):
        module = nn.LSTM(4, 5)
        dispatched = step(module, (torch.empty(7, 2, 4, requires_grad=True),), _loss)
    output, *_, flat = next(results for name, results in dispatched.operators if name == "aten::_cudnn_rnn")
    assert output.dtype == flat.dtype == FP16
    assert flat.storage_bytes == sum(parameter.numel() for parameter in module.parameters()) * 2


@pytest.mark.parametrize(("kind", "cell"), [("LSTM", "_thnn_fused_lstm_cell"), ("GRU", "_thnn_fused_gru_cell")])
def test_layers_in_bf16_run_by_fused_cells_step_by_step(kind: str, cell: str) -> None:
    with _on_cuda() as notes:
        module = getattr(nn, kind)(4, 5, 2, bidirectional=True, dtype=BF16, dropout=0.1)
        dispatched = step(module, (torch.empty(7, 2, 4, dtype=BF16, requires_grad=True),), _loss)
    names = _names(dispatched)
    assert names.count(cell) == 7 * 2 * 2 and "native_dropout" in names
    assert not notes and "_cudnn_rnn" not in names
    outputs = [results[0].shape for name, results in dispatched.operators if name == "aten::cat"]
    assert outputs[:2] == [(7, 2, 10), (7, 2, 10)]


class _Packed(nn.Module):
    """A layer over sequences of 7 and 3 tokens, and their padding again."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 7]), batch_first=True, enforce_sorted=False)
        packed = self.layer(packed)
        return nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0]


class _Pointwise(nn.Module):
    def forward(self, packed: Any) -> Any:
        return packed._replace(data=packed.data * 2)


def test_packing_gives_and_saves_what_it_does_for_real() -> None:
    real = step(_Packed(_Pointwise()), (torch.randn(2, 7, 4, requires_grad=True),), _loss)
    with _on_cuda():
        fake = step(_Packed(_Pointwise()), (torch.empty(2, 7, 4, requires_grad=True),), _loss)
    assert (fake.saved_bytes, fake.peak_bytes) == (real.saved_bytes, real.peak_bytes)
    packed = next(results for name, results in fake.operators if name == "aten::_pack_padded_sequence")
    assert [result.shape for result in packed] == [(10, 4), (7,)]


def _packed(kind: str, num_layers: int, dtype: torch.dtype = FP32, **options: Any) -> _Packed:
    layer = getattr(nn, kind)(4, 5, num_layers, batch_first=True, dtype=dtype, **options)
    layer.register_forward_hook(lambda module, args, output: output[0])
    return _Packed(layer)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "options",
    [{"num_layers": 1}, {"num_layers": 2, "bidirectional": True, "dropout": 0.1}, {"num_layers": 2, "bias": False}],
)
def test_layers_over_packed_sequences_save_on_a_cpu_what_they_do_for_real(kind: str, options: dict[str, Any]) -> None:
    real = step(_packed(kind, **options), (torch.randn(2, 7, 4, requires_grad=True),), _loss)
    mode = FakeTensorMode()
    with fake_world(mode, Shadow(mode)), cpu_kernels():
        fake = step(_packed(kind, **options), (torch.empty(2, 7, 4, requires_grad=True),), _loss)
    assert (fake.saved_bytes, fake.peak_bytes) == (real.saved_bytes, real.peak_bytes)


@pytest.mark.parametrize(("kind", "cell"), [("LSTM", "_thnn_fused_lstm_cell"), ("GRU", "_thnn_fused_gru_cell")])
def test_packed_sequences_in_bf16_run_by_fused_cells(kind: str, cell: str) -> None:
    with _on_cuda():
        inputs = (torch.empty(2, 7, 4, dtype=BF16, requires_grad=True),)
        names = _names(step(_packed(kind, 2, BF16, bidirectional=True), inputs, _loss))
    assert names.count(cell) == 7 * 2 * 2 and "_cudnn_rnn" not in names


def test_packed_sequences_go_to_cudnn_in_one() -> None:
    with _on_cuda():
        dispatched = step(_packed("LSTM", 1), (torch.empty(2, 7, 4, requires_grad=True),), _loss)
    output = next(results[0] for name, results in dispatched.operators if name == "aten::_cudnn_rnn")
    assert output.shape == (10, 5)
    assert "_cudnn_rnn_backward" in _names(dispatched)


CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2},
    "bert": {"architectures": ["BertForMaskedLM"]},
    "llama": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 8},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 16},
    "deepseek_v3": {
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "first_k_dense_replace": 1,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
    },
    "t5": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 1,
        "num_heads": 4,
        "architectures": ["T5ForConditionalGeneration"],
    },
}


def _kernels_of(name: str, precision: Any, folder: Path) -> set[str]:
    fields = {"model_type": name, "vocab_size": 100, **CONFIGS[name]}
    if name not in ("gpt2", "t5"):
        fields |= {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps(fields))
    source = ModelSource(spec=str(folder / "config.json"), kind="hf_config")
    recording = record_step(fake_model(source, 2, precision, 32), "cuda")
    forward = {str(node.target) for node in recording.graph.nodes if node.meta.get("phase") == "forward"}
    kinds = {"_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention", "_softmax"}
    kinds |= {"_safe_softmax", "native_dropout"}
    return {kind.removeprefix("_scaled_dot_product_") for kind in kinds if f"aten.{kind}.default" in forward}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "half", "full"),
    [
        ("gpt2", {"flash_attention", "native_dropout"}, {"efficient_attention", "native_dropout"}),
        ("bert", {"flash_attention", "native_dropout"}, {"efficient_attention", "native_dropout"}),
        # Grouped queries have no fused kernel in fp32.
        ("llama", {"flash_attention"}, {"_safe_softmax"}),
        # A window is a mask, and with a mask transformers repeats keys and values.
        ("mistral", {"efficient_attention"}, {"efficient_attention"}),
        # Heads of 24 for queries and 16 for values.
        ("deepseek_v3", {"efficient_attention"}, {"efficient_attention"}),
        # Caps on scores have no fused kernel: transformers computes them in the open.
        ("gemma2", {"_softmax"}, {"_softmax"}),
        # Its bias is a mask that is trained.
        ("t5", {"efficient_attention", "native_dropout"}, {"efficient_attention", "native_dropout"}),
    ],
)
def test_models_take_the_attention_that_they_take_on_cuda(
    name: str, half: set[str], full: set[str], tmp_path: Path
) -> None:
    assert _kernels_of(name, "bf16", tmp_path) == half
    assert _kernels_of(name, "fp32", tmp_path) == full
