"""Training loops of four engines with a recorder around each: what the ranks of its tests run."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard
from runtime.in_flight import note
from runtime.record_memory import MemoryRecorder
from runtime.recorder import Recorder
from tests.integration.fsdp_training import Tiny, blocks_of, plan_of, tokens_of

WIDTH, NUM_STEPS = 64, 6


def model() -> Tiny:
    """Returns the model of all loops: 3 layers, every parameter of which divides by 4 ranks."""
    torch.manual_seed(0)
    return Tiny(width=WIDTH)


def alone(_: int) -> dict[str, Any]:
    """One process: no messages."""
    with Recorder("cpu") as recorder:
        trained = model()
        optimizer = torch.optim.Adam(trained.parameters(), foreach=False)
        recorder.built()
        for step in range(NUM_STEPS):
            trained(tokens_of(step, 0, 0)).backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    return _said(recorder, all_ranks=False)


def ddp(num_micro_batches: int) -> dict[str, Any]:
    """DistributedDataParallel, which reduces after the last micro-batch."""
    with Recorder("cpu") as recorder:
        trained = DistributedDataParallel(model())
        optimizer = torch.optim.Adam(trained.parameters(), foreach=False)
        recorder.built()
        for step in range(NUM_STEPS):
            for micro_batch in range(num_micro_batches - 1):
                with trained.no_sync():
                    trained(tokens_of(step, micro_batch, dist.get_rank())).backward()
            trained(tokens_of(step, num_micro_batches - 1, dist.get_rank())).backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    return _said(recorder)


def leave_in_flight(num_elements: int) -> tuple[bool, int]:
    """Returns whether an all-gather in flight had come when memory was read, and the bytes that were read."""

    class Sender:
        def wait(self) -> None:
            work.wait()

    sender = Sender()
    with MemoryRecorder(torch.device("cpu")) as memory:
        own, full = torch.ones(num_elements), torch.empty(num_elements * dist.get_world_size())
        work = dist.all_gather_single(full, own, async_op=True)
        note(sender)
        memory.step_ended()
        has_come = work.is_completed()
    work.wait()
    return has_come, memory.steps[0][1]


def fsdp2(num_micro_batches: int) -> dict[str, Any]:
    """PyTorch's own `fully_shard` of every block."""
    with Recorder("cpu") as recorder:
        trained: nn.Module = model()
        for name in blocks_of(trained):  # type: ignore[arg-type]
            fully_shard(trained.get_submodule(name))
        fully_shard(trained)
        optimizer = torch.optim.Adam(trained.parameters(), foreach=False)
        recorder.built()
        for step in range(NUM_STEPS):
            for micro_batch in range(num_micro_batches):
                trained(tokens_of(step, micro_batch, dist.get_rank())).backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.step()
    return _said(recorder)


def ours(num_micro_batches: int) -> dict[str, Any]:
    """The runtime, at (p, g, o) = (2, 2, 4)."""
    with Recorder() as recorder:
        trained = model()
        plan = plan_of(blocks_of(trained), (2, 2, 2, 4), num_micro_batches, "fp32", dist.get_world_size())
        optimizer = ShardedOptimizer(shard(trained, plan), torch.optim.Adam)
        recorder.built()
        for step in range(NUM_STEPS):
            for micro_batch in range(num_micro_batches):
                optimizer.backward(trained(tokens_of(step, micro_batch, dist.get_rank())))
            optimizer.step()
            recorder.step()
    return _said(recorder)


def deepspeed_engine(num_micro_batches: int) -> dict[str, Any]:
    """DeepSpeed at stage 1."""
    os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_RANK": str(dist.get_rank())}
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", verbose=False)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": num_micro_batches,
        "zero_optimization": {"stage": 1},
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_allow_untested_optimizer": True,
    }
    with Recorder("cpu") as recorder:
        engine, *_ = deepspeed.initialize(model=model(), config=config)
        recorder.built()
        for step in range(NUM_STEPS):
            for micro_batch in range(num_micro_batches):
                engine.backward(engine(tokens_of(step, micro_batch, dist.get_rank())))
                engine.step()
            recorder.step()
    return _said(recorder)


def _said(recorder: Recorder, all_ranks: bool = True) -> dict[str, Any]:
    report = recorder.report(all_ranks=all_ranks)
    traffic = {(row.operation, row.degree_from, row.degree_to): (row.bytes, row.count) for row in report.traffic}
    return {"traffic": traffic, "memory": report.memory, "step_s": report.step_s, "text": str(report)}
