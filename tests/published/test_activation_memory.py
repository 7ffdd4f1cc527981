"""Bytes that a transformer layer saves on a GPU, against those that were published.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.1: with sequence
length s, micro-batch b, width h and a heads, a layer in half precision with dropout saves s b h (34 + 5 a s / h) bytes.
The part 5 a s / h is the scores; fused attention (section 4.1's selective recomputation, in one kernel) has none.
"""

from pathlib import Path

import pytest
import torch

from planner.model_graph import ModelSource
from planner.trace.fake.fake_model import fake_model
from planner.trace.record.record_step import record_step

LENGTH, WIDTH, HEADS, BATCH = 64, 128, 4, 3

FILE = """
import torch
from torch import nn
from torch.nn import functional as F

class Layer(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if self.fused:
            attended = F.scaled_dot_product_attention(query, key, value, dropout_p=0.1, is_causal=True)
        else:
            scores = (query / (width // self.heads) ** 0.5) @ key.transpose(-1, -2)
            attended = F.dropout(scores.softmax(-1), 0.1) @ value
        x = x + F.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, width)), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), 0.1)

class Net(nn.Module):
    def __init__(self, width, heads, depth, fused):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads, fused) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.float().square().mean()

def make(micro_batch_size, depth=2, fused=True, width=128, heads=4, length=64):
    return Net(width, heads, depth, fused), {"x": torch.zeros(micro_batch_size, length, width)}
"""


def _saved_bytes(folder: Path, depth: int, fused: bool) -> int:
    file = folder / "transformer.py"
    file.write_text(FILE)
    source = ModelSource(spec=f"{file}:make", kind="file", arguments={"depth": str(depth), "fused": str(fused).lower()})
    recording = record_step(fake_model(source, BATCH, "fp16", None), "cuda")
    gradient = torch.ops.aten.ones_like.default  # of the loss: the first operator of backward
    begins = min(node.meta["index"] for node in recording.graph.nodes if node.target is gradient)
    return sum(event.delta_bytes for event in recording.events if event.operator < begins)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fused", [True, False])
def test_a_layer_saves_34_bytes_per_token_and_unit_and_5_per_score_in_the_open(fused: bool, tmp_path: Path) -> None:
    layer = _saved_bytes(tmp_path, 3, fused) - _saved_bytes(tmp_path, 2, fused)
    tokens = LENGTH * BATCH
    scores = 0 if fused else 5 * HEADS * LENGTH**2 * BATCH
    # The paper leaves out what is not multiplied by the width: two numbers per row of each norm and, where attention is
    # fused, one per row of scores, with three numbers of 8 bytes for the generator of the dropout.
    small = tokens * 2 * 2 * 4 + (tokens * HEADS * 4 + 3 * 8 if fused else 0)
    assert layer == 34 * tokens * WIDTH + scores + small
