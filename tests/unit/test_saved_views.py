"""Memory that DeepSpeed's stage 3 cannot free: what autograd saved as views of parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costmodels.deepspeed.micro_batch import Gather, MicroBatch, Windows
from costmodels.deepspeed.saved_views import saved_view_elements
from costmodels.strategy import Strategy
from costmodels.workload import Amount, Block, ModuleCall, Parameter, Phase, Segment, Workload
from planner.model_graph import ModelSource
from planner.trace import trace

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.bare = nn.Linear(8, 8, bias=False)
        self.turned = nn.Parameter(torch.randn(8, 8))
        self.stacked = nn.Parameter(torch.randn(3, 8, 8))
        self.chosen = nn.Parameter(torch.randn(3, 8, 8))
        self.whole = nn.Parameter(torch.randn(8, 8))
        self.copied = nn.Parameter(torch.randn(3, 8, 8))
        self.scale = nn.Parameter(torch.randn(3, 8))
        self.shift = nn.Parameter(torch.randn(3, 8))

    def forward(self, x):
        x = self.bare(self.linear(x))
        x = x @ self.turned.t()
        x = torch.bmm(x, self.stacked[:2])
        x = F.linear(x, self.chosen[1])
        x = x @ self.whole
        x = x @ self.copied.permute(1, 0, 2).reshape(8, 24)[:, :8]
        x = x * self.scale[0] + self.shift[0]
        return x.square().mean()


def net(micro_batch_size):
    model = MADE
    model.linear.requires_grad_(True)
    return model, {"x": torch.randn(2, micro_batch_size, 8)}
"""


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "but the first frozen"])
def test_parameters_are_named_of_which_backward_reads_a_view(tmp_path: Path, frozen: bool) -> None:
    made = "Net().requires_grad_(False)" if frozen else "Net()"
    (tmp_path / "net.py").write_text(MODEL.replace("MADE", made))
    source = ModelSource(spec=f"{tmp_path}/net.py:net", kind="file")
    workload = trace(source, precision="fp32", device="cpu").workload
    names = [workload.parameters[index].name for index in workload.saved_views]
    assert names == ["turned", "stacked", "chosen", "scale"]


def segment(block: int, phase: Phase, *parameters: int) -> Segment:
    return Segment(block, phase, (ModuleCall(f"{block}", parameters),), Amount(), Amount(), 1)


def micro_batch(*gathered_again: tuple[int, ...]) -> MicroBatch:
    nothing = np.zeros(0, np.int64)
    gathers = tuple(Gather(parameters, False, "backward", 0, 0) for parameters in gathered_again)
    return MicroBatch(gathers, Windows(nothing, nothing, nothing, nothing), (), ())


SEGMENTS = (segment(0, "forward", 0), segment(1, "forward", 1), segment(1, "backward", 1), segment(0, "backward", 0))
WORKLOAD = Workload(
    (Parameter("a", (5,)), Parameter("b", (7,))),
    (Block("a", 0, (0,), True), Block("b", 0, (1,), True)),
    SEGMENTS,
    saved_views=(0, 1),
)
PLAIN, AGAIN = (Strategy(4, 4, 4, 4, recompute) for recompute in ("none", "full"))


def test_views_keep_what_is_released_until_backward_has_read_it() -> None:
    step = [micro_batch((0,), (1,))]
    assert saved_view_elements(WORKLOAD, (PLAIN,), step) == (0, 5, 12, 5)
    assert saved_view_elements(replace(WORKLOAD, saved_views=(1,)), (PLAIN,), step) == (0, 0, 7, 0)


def test_what_is_not_gathered_again_was_not_released() -> None:
    assert saved_view_elements(WORKLOAD, (PLAIN,), [micro_batch((1,))]) == (0, 0, 7, 0)


def test_recomputed_blocks_save_views_in_backward_alone() -> None:
    assert saved_view_elements(WORKLOAD, (AGAIN,), [micro_batch((0,), (1,), (1,))]) == (0, 0, 7, 0)
