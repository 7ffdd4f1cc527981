"""Known warnings of the libraries beneath are kept back, and no other."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest

from planner.model_graph import ModelSource
from planner.trace import trace
from runtime.without_noise import without_noise

ENCODER = """
import warnings
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

    def forward(self, x):
        return self.encoder(x).mean()

def make(micro_batch_size):
    warnings.warn("this model is old")
    return Net(), {"x": torch.zeros(micro_batch_size, 4, 8)}
"""


def test_a_trace_shows_the_warnings_of_the_model_alone(tmp_path: Path) -> None:
    file = tmp_path / "encoder_model.py"
    file.write_text(ENCODER)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace(ModelSource(spec=f"{file}:make", kind="file"), precision="fp32", device="cpu")
    assert {str(warning.message) for warning in caught} == {"this model is old"}


def test_only_a_loss_type_that_nobody_set_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("transformers.modeling_utils")
    text = "`loss_type={}` was set in the config but it is unrecognized. Using the default loss: `ForCausalLMLoss`."
    with caplog.at_level(logging.WARNING), without_noise():
        for value in (None, "ForNobody"):
            logger.warning(text.format(value))
    logger.warning(text.format(None))
    assert [record.getMessage() for record in caplog.records] == [text.format("ForNobody"), text.format(None)]


def test_deprecations_of_what_the_engine_calls_are_no_news() -> None:
    text = "`torch.distributed.{}` is deprecated. Please use another."
    names = ("all_gather_into_tensor", "reduce_scatter_tensor", "reduce_op")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with without_noise():
            for name in names:
                warnings.warn(text.format(name), FutureWarning, stacklevel=1)
    assert [str(warning.message) for warning in caught] == [text.format("reduce_op")]
