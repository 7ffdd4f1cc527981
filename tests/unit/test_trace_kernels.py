"""Which kernels a step runs, what they give and what they save: fake beside real on a CPU, and by CUDA's rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from dispatched import Dispatched, step
from function_cases import ANY, LAYOUTS, OF_IMAGES, Function
from module_cases import CASES
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from planner.model_graph import ModelSource
from planner.trace.fake.fake_model import fake_model
from planner.trace.fake.fake_world import fake_world
from planner.trace.fake.shadow import Shadow
from planner.trace.kernels.autocast import autocast_region
from planner.trace.kernels.cpu_kernels import cpu_kernels
from planner.trace.kernels.onednn_workspace import lstm_workspace_bytes
from planner.trace.record.record_step import record_step


def _loss(output: Any) -> torch.Tensor:
    floats = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return sum((leaf.float().square().mean() for leaf in floats), start=torch.zeros(()))


class _Autocast(nn.Module):
    """The module under autocast in bf16, the loss outside."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        with autocast_region("bf16"):
            return self.module(*inputs)


@contextmanager
def _fake() -> Iterator[None]:
    mode = FakeTensorMode()
    with fake_world(mode, Shadow(mode)):
        yield


def _run(name: str, wrap: Any) -> Dispatched:
    make, inputs = CASES[name]
    torch.manual_seed(0)
    return step(wrap(make()).train(), inputs(), _loss)


REFUSED = {"BCELoss", "AdaptiveLogSoftmaxWithLoss"}
REORDERED = {"CircularPad2d"}
"""Torch takes the axes in another order on fake tensors; the bytes are the same."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wrap", [nn.Identity, _Autocast], ids=["fp32", "autocast"])
def test_a_fake_step_of_a_module_gives_and_saves_what_a_real_one_does(name: str, wrap: Any) -> None:
    wrap = (lambda module: module) if wrap is nn.Identity else wrap
    if wrap is _Autocast and name in REFUSED:
        pytest.skip("torch refuses it under the CPU's autocast")
    real = _run(name, wrap)
    with _fake(), cpu_kernels():
        fake = _run(name, wrap)
    assert (fake.saved_bytes, fake.peak_bytes) == (real.saved_bytes, real.peak_bytes)
    if name not in REORDERED:
        assert fake.operators == real.operators


class _Called(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        result = self.function(x)
        if not isinstance(result, torch.Tensor) or result.dim() < 3 or not result.is_floating_point():
            return result
        # Its gradient comes with axes in another order than its own.
        return result.movedim(1, -1).contiguous() * 1


def _call(function: Function, layout: str) -> Dispatched | None:
    torch.manual_seed(0)
    try:
        return step(_Called(function), (LAYOUTS[layout](),), _loss)
    except (RuntimeError, ValueError):
        return None  # Not for tensors of this shape.


def _are_equal(fake: Dispatched | None, real: Dispatched | None) -> bool:
    if fake is None or real is None:
        return False
    same_bytes = (fake.saved_bytes, fake.peak_bytes) == (real.saved_bytes, real.peak_bytes)
    return same_bytes and fake.operators == real.operators


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_functions_give_and_save_what_they_do_for_real_however_axes_lie_in_memory(layout: str) -> None:
    of_shape = ANY if layout.startswith("3") else {**ANY, **OF_IMAGES}
    real = {name: _call(function, layout) for name, function in of_shape.items()}
    with _fake(), cpu_kernels():
        fake = {name: _call(of_shape[name], layout) for name, result in real.items() if result is not None}
    assert len(fake) > 0.9 * len(of_shape)
    wrong = [name for name, made in fake.items() if not _are_equal(made, real[name])]
    assert not wrong


UNKNOWN = """
import torch
from torch import nn

@torch.library.custom_op("shardplan_test::gated_matmul", mutates_args=())
def gated_matmul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight

gated_matmul.register_fake(lambda x, weight: x.new_empty(x.shape[0], weight.shape[1]))
gated_matmul.register_autograd(lambda ctx, g: (g, None), setup_context=lambda ctx, inputs, output: None)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return gated_matmul(self.layer(x), self.layer.weight).sum()

def make(micro_batch_size):
    return Net(), {'x': torch.zeros(micro_batch_size, 4)}
"""


def test_an_operator_without_a_formula_is_told_with_the_line_that_called_it(tmp_path: Path) -> None:
    file = tmp_path / "unknown.py"
    file.write_text(UNKNOWN)
    recording = record_step(fake_model(ModelSource(spec=f"{file}:make", kind="file"), 2, "fp32", None), "cpu")
    line = 1 + UNKNOWN.splitlines().index("        return gated_matmul(self.layer(x), self.layer.weight).sum()")
    [warning] = recording.warnings
    assert warning.startswith(f"{file}:{line}: shardplan_test.gated_matmul.default has no formula")
    assert "register_flop_formula" in warning


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (6, 3, 16, 64), (9, 19, 16, 3), (5, 7, 300, 17), (4, 2, 512, 256)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_workspace_of_an_lstm_is_as_large_as_onednn_makes_it(
    sizes: tuple[int, int, int, int], dtype: torch.dtype
) -> None:
    steps, batch, width, hidden = sizes
    module = nn.LSTM(width, hidden).to(dtype)
    dispatched = step(module, (torch.randn(steps, batch, width, dtype=dtype, requires_grad=True),), _loss)
    layers = [results for name, results in dispatched.operators if name == "aten::mkldnn_rnn_layer"]
    if not layers:
        pytest.skip("this CPU has no kernel for the type")
    element_bytes = torch.empty(0, dtype=dtype).element_size()
    assert layers[0][3].storage_bytes == lstm_workspace_bytes(steps, batch, width, hidden, element_bytes)
