import copy

import torch
from torch import nn

from runtime.prepare import generated_samples
from runtime.settings import Settings
from runtime.weights import parameters_without_memory, whole_model

MODEL = """
import torch
from torch import nn
from torch.nn.init import constant_


class Captured(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))
        constant_(self.weight, 7.0)

    def forward(self, x):
        return (x * self.weight).mean()


def make(micro_batch_size):
    return Captured(), {"x": torch.randn(micro_batch_size, 3)}
"""


def test_making_an_example_leaves_the_initialization_that_a_model_imports_as_it_is(tmp_path):
    (tmp_path / "captured_model.py").write_text(MODEL)
    settings = Settings(f"{tmp_path / 'captured_model.py'}:make", "file", {}, (), "cpu", 1, 1, 2, 1, None, "fp32", {})
    assert generated_samples(settings, seed=0).batch([0])["x"].shape == (1, 3)
    from captured_model import make

    assert torch.equal(whole_model(lambda: make(2), seed=0).weight, torch.full((3,), 7.0))


def test_parameters_without_memory_keep_shape_ties_and_training_through_copies():
    with parameters_without_memory():
        layer = nn.Linear(3, 5)
        layer.bias.requires_grad_(False)
        model = nn.Sequential(layer, copy.deepcopy(layer), nn.Embedding(5, 3))
        model[2].weight = layer.weight
        nn.init.xavier_uniform_(layer.weight[1:])
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert [(name, tuple(p.shape), p.requires_grad) for name, p in model.named_parameters()] == [
        ("0.weight", (5, 3), True),
        ("0.bias", (5,), False),
        ("1.weight", (5, 3), True),
        ("1.bias", (5,), False),
    ]
    assert nn.Linear(2, 2).weight.device.type == "cpu"
