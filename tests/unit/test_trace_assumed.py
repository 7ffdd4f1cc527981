"""Values that a trace has not: it assumes some, says where, and comes to an end with a bounded answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.model_graph import ModelGraph, ModelSource
from planner.trace import trace

TEXT = """
import torch
from torch import nn
{top}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.layerdrop = 0.1

    def forward(self, x):
        y = self.fc(x)
        {body}

def make(micro_batch_size, sequence_length=8):
    return {model}, {{"x": torch.zeros(micro_batch_size, 4)}}
"""
PRODUCT = 2 * 4 * 4


def _traced(folder: Path, body: str, top: str = "", model: str = "Net()", length: int | None = None) -> ModelGraph:
    file = folder / "model.py"
    file.write_text(TEXT.format(top=top, body=body, model=model))
    return trace(ModelSource(spec=f"{file}:make", kind="file"), precision="fp32", device="cpu", sequence_length=length)


@pytest.mark.parametrize(
    ("body", "products", "text"),
    [
        ("return y.mean() if y.sum().item() > 0 else self.fc(y).mean()", 1, "a value of the model decides"),
        ("return self.fc(y).mean() if y.sum() > 0.5 else y.mean()", 2, "a value of the model decides"),
        (
            "n = 0\n        while y.sum() > 0 and n < 3: y, n = self.fc(y), n + 1\n        return y.mean()",
            4,
            "a value of the model decides",
        ),
        ("return y[y > 0].mean()", 1, "a mask selects elements; assumed to select all"),
        ("return y.mean() * sum(y[0].tolist())", 1, "assumed to be 1"),
        ("return y.mean() * float(y.detach().numpy().sum())", 1, "read as an array; assumed to be ones"),
        ("return y.mean() * y.nonzero().shape[0]", 1, "non-zero values are asked for; assumed to be all"),
        ("return y.mean() * float(f'{y.sum():.2f}')", 1, "a value of the model decides"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_assumed_value_is_told_with_its_line(tmp_path: Path, body: str, products: int, text: str) -> None:
    graph = _traced(tmp_path, body)
    assert graph.traced_by == "fake"
    found = [warning for warning in graph.warnings if text in warning]
    assert found
    assert all(warning.startswith((f"{tmp_path / 'model.py'}:1", "in backward")) for warning in found)
    forward = sum(segment.flop.at(1) for segment in graph.workload.segments if segment.phase == "forward")
    assert forward == products * PRODUCT


def test_printing_a_tensor_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = _traced(tmp_path, "print(y, f'{y}')\n        return y.mean()")
    assert "FakeTensor" in capsys.readouterr().out
    assert not [warning for warning in graph.warnings if "LayerDrop" not in warning]


def test_layers_are_not_dropped_and_the_trace_says_so(tmp_path: Path) -> None:
    graph = _traced(tmp_path, "return y.mean() if self.layerdrop == 0 else self.fc(y).mean()")
    assert any("LayerDrop of 0.1 is off in the trace" in warning for warning in graph.warnings)
    assert sum(segment.flop.at(1) for segment in graph.workload.segments if segment.phase == "forward") == PRODUCT


def test_an_own_function_of_autograd_is_traced(tmp_path: Path) -> None:
    top = (
        "class Square(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(context, x):\n"
        "        context.save_for_backward(x)\n"
        "        return x * x\n"
        "    @staticmethod\n"
        "    def backward(context, gradient):\n"
        "        return 2 * gradient * context.saved_tensors[0]\n"
    )
    graph = _traced(tmp_path, "return Square.apply(y).mean()", top)
    assert (graph.traced_by, len(graph.workload.parameters)) == ("fake", 2)


@pytest.mark.parametrize("model", ["torch.compile(Net())", "Net().eval()", "Net().double()"])
def test_how_a_module_was_set_or_compiled_does_not_hinder(tmp_path: Path, model: str) -> None:
    graph = _traced(tmp_path, "return y.mean()", model=model)
    assert (graph.traced_by, graph.workload.num_params) == ("fake", 20)
    is_told = any("torch.compile is not followed" in warning for warning in graph.warnings)
    assert is_told == ("compile" in model)


def test_random_numbers_that_decide_what_runs_are_found_out_alike_each_time(tmp_path: Path) -> None:
    body = "import random\n        for _ in range(random.randint(1, 9)): y = self.fc(y)\n        return y.mean()"
    first, second = (_traced(tmp_path, body) for _ in range(2))
    assert first.traced_by == "static"
    assert "runs other operators" in first.lost[0]
    assert first == second


def test_a_sequence_length_that_reaches_no_tensor_is_told(tmp_path: Path) -> None:
    graph = _traced(tmp_path, "return y.mean()", length=16)
    assert any("no tensor of the batch has an axis of 16" in warning for warning in graph.warnings)
    assert not any("has an axis of" in warning for warning in _traced(tmp_path, "return y.mean()").warnings)
