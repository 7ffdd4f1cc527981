r"""Trains a planned model in a loop of one's own.

    shardplan plan examples/gpt.py:small_gpt --engine fsdp --hardware local-cpu --nodes 2 --ranks-per-node 2 \
        --global-batch-size 16 --micro-batch-size 2 --precision fp32 --out my-plan
    PYTHONPATH=my-plan torchrun --nproc-per-node 4 examples/own_loop.py my-plan

On a cluster without this package the folder my-plan is all that is needed beside torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import count

import torch
import torch.distributed as dist
from gpt import Counting, small_gpt
from shardplan_runtime import Recorder, ShardedOptimizer, load, save, shard
from torch import Tensor
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader, DistributedSampler


def train(plan: str, num_steps: int, checkpoints: str, resume: bool) -> list[float]:
    """Trains until `num_steps` are done, and returns this rank's mean loss of each step."""
    with Recorder() as recorder:
        torch.manual_seed(0)  # equal weights on all ranks
        model, example = small_gpt(micro_batch_size=2)
        optimizer = ShardedOptimizer(shard(model, plan), torch.optim.AdamW, lr=3e-3, max_norm=1.0)
        scheduler = LinearLR(optimizer, start_factor=0.1, total_iters=10)
        recorder.built()
        first = 0
        if resume:
            loaded = load(optimizer, checkpoints)
            first = loaded.step
            scheduler.load_state_dict(loaded.extra)
        batches = batches_from(first * optimizer.num_micro_batches, len(example["tokens"]))
        losses = []
        for _ in range(first, num_steps):
            loss = 0.0
            for _ in range(optimizer.num_micro_batches):
                loss_of_batch = model(**next(batches))
                optimizer.backward(loss_of_batch)
                loss += loss_of_batch.item() / optimizer.num_micro_batches
            optimizer.step()
            scheduler.step()
            recorder.step()
            losses.append(loss)
    save(optimizer, checkpoints, step=num_steps, extra=scheduler.state_dict())
    if recorder.has_all:
        report = recorder.report(all_ranks=True)
        if dist.get_rank() == 0:
            print(report.compare(plan))
    return losses


def batches_from(first: int, micro_batch_size: int) -> Iterator[dict[str, Tensor]]:
    """Yields this rank's micro-batches from one on, epoch after epoch."""
    samples = Counting(256, sequence_length=64)
    sampler: DistributedSampler[dict[str, Tensor]] = DistributedSampler(samples)
    loader = DataLoader(samples, micro_batch_size, sampler=sampler)
    for epoch in count(first // len(loader)):
        sampler.set_epoch(epoch)
        for number, batch in enumerate(loader, epoch * len(loader)):
            if number >= first:
                yield {name: tensor.to(device()) for name, tensor in batch.items()}


def device() -> torch.device:
    """Returns where this rank trains."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plan", help="the folder of the plan")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoints", default="checkpoints", help="a folder that all ranks see")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    given = parser.parse_args()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    losses = train(given.plan, given.steps, given.checkpoints, given.resume)
    print(f"rank {dist.get_rank()}: losses", *(f"{loss:.4f}" for loss in losses))
    dist.destroy_process_group()
