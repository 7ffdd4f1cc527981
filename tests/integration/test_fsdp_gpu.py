"""On CUDA, messages run on streams of their own beside compute, and train as they do on gloo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from fsdp_training import ADAMW, Tiny, blocks_of, mixed_plan, tokens_of, train_alone
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan

NUM_DEVICES = torch.cuda.device_count()
WIDTH, NUM_LAYERS, SAMPLES = 4096, 8, 8192

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(NUM_DEVICES < 2, reason=f"needs two CUDA devices, and here are {NUM_DEVICES}"),
]


class Layers(nn.Module):
    """Layers whose products take longer than their gathers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(NUM_LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns a loss."""
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x.float().square().mean()


def _hidden_part(degrees: tuple[int, int, int]) -> float:
    """Returns the part of the messages' time on this rank's device that compute runs beside."""
    world_size = dist.get_world_size()
    param_degree, grad_degree, optim_degree = degrees
    names = tuple(f"layers.{number}" for number in range(NUM_LAYERS))
    strategy = BlockStrategy(names, param_degree, param_degree, grad_degree, optim_degree)
    plan = ShardingPlan((strategy,), world_size, world_size, 1, "bf16", (world_size,))
    model = Layers()
    sharded = shard(model, plan)
    optimizer = ShardedOptimizer(sharded, torch.optim.AdamW, lr=1e-4)
    batch = torch.randn(SAMPLES, WIDTH, device="cuda", dtype=torch.bfloat16)
    for _ in range(4):
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiled:
            optimizer.backward(model(batch))
            optimizer.step()
            torch.cuda.synchronize()
    messages, computed = [], []
    for event in profiled.events() or ():
        if event.device_type == DeviceType.CUDA:
            span = (event.time_range.start, event.time_range.end)
            (messages if "nccl" in event.name.lower() else computed).append(span)
    assert messages, "no message was seen on the device"
    assert computed, "no compute was seen on the device"
    hidden = sum(max(0.0, min(end, last) - max(start, first)) for start, end in messages for first, last in computed)
    return hidden / sum(end - start for start, end in messages)


def _losses(degrees: tuple[int, int, int]) -> list[float]:
    """Returns the losses of the recipe of most tests, in fp32, as means over ranks."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Tiny()
    plan = mixed_plan({blocks_of(model): (degrees[0], *degrees)}, world_size=world_size)
    optimizer = ShardedOptimizer(shard(model, plan), ADAMW.optimizer, **ADAMW.groups[0])
    losses = []
    for step in range(ADAMW.num_steps):
        loss = model(tokens_of(step, 0, rank).cuda())
        optimizer.backward(loss)
        optimizer.step()
        mean = loss.detach() / world_size
        dist.all_reduce(mean)
        losses.append(mean.item())
    return losses


def _rank(rank: int, world_size: int, folder: str, degrees: tuple[int, int, int]) -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder}/store", rank=rank, world_size=world_size, device_id=torch.device(rank)
    )
    torch.save(_hidden_part(degrees), f"{folder}/hidden.{rank}")
    torch.save(_losses(degrees), f"{folder}/losses.{rank}")
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["(N,N,N)", "(1,N,N)", "(1,1,N)"])
def test_messages_run_beside_compute(name: str, tmp_path: Path) -> None:
    degrees = tuple(NUM_DEVICES if each == "N" else int(each) for each in name[1:-1].split(","))
    multiprocessing.start_processes(_rank, (NUM_DEVICES, str(tmp_path), degrees), NUM_DEVICES)  # type: ignore
    hidden = [torch.load(tmp_path / f"hidden.{rank}") for rank in range(NUM_DEVICES)]
    assert min(hidden) > 0.5
    losses, _ = train_alone(Tiny, world_size=NUM_DEVICES)
    for rank in range(NUM_DEVICES):
        assert torch.load(tmp_path / f"losses.{rank}") == pytest.approx(losses, rel=1e-4)
