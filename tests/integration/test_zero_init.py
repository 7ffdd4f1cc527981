"""A model that DeepSpeed has partitioned while it was made is traced as it is trained: whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.second(self.first(x)).square().mean()

def make(micro_batch_size):
    import deepspeed
    # An extension for inference that would be compiled for a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    with deepspeed.zero.Init(config_dict_or_path={"train_batch_size": 1, "zero_optimization": {"stage": 3}}):
        net = Net()
    assert sum(parameter.numel() for parameter in net.parameters()) == 0
    return net, {"x": torch.zeros(micro_batch_size, 8)}
"""
TRACE = """
import sys
from planner.model_graph import ModelSource
from planner.trace import trace
graph = trace(ModelSource(spec=sys.argv[1], kind="file"), precision="bf16", device="cpu")
print("parameters", graph.workload.num_params, graph.traced_by)
"""


def test_a_model_made_within_zero_init_is_traced_with_its_full_size(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    # zero.Init makes a process group, which no other test should meet.
    one_rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", TRACE, f"{tmp_path / 'net.py'}:make"],
        capture_output=True,
        text=True,
        env={**os.environ, **one_rank, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert f"parameters {8 * 32 + 32 + 32 * 8 + 8} fake" in done.stdout, done.stderr
