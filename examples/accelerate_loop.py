r"""Trains a planned model with Accelerate: it launches, deals out the data and logs; the runtime trains.

    shardplan plan examples/gpt.py:small_gpt --engine fsdp --hardware local-cpu --nodes 2 --ranks-per-node 2 \
        --global-batch-size 16 --micro-batch-size 2 --precision fp32 --out my-plan
    PYTHONPATH=my-plan accelerate launch --cpu --num_processes 4 examples/accelerate_loop.py my-plan

The model and the optimizer do not go through `accelerator.prepare`, which would wrap the model in DDP.
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from gpt import Counting, small_gpt
from shardplan_runtime import ShardedOptimizer, read_plan, save, shard
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader


def train(folder: str, num_epochs: int, checkpoints: str) -> list[float]:
    """Trains some epochs, and returns the mean loss of each step over all ranks."""
    plan = read_plan(folder)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=plan.num_micro_batches)
    torch.manual_seed(0)  # equal weights on all ranks
    model, example = small_gpt(micro_batch_size=2)
    optimizer = ShardedOptimizer(shard(model, plan), torch.optim.AdamW, lr=3e-3, max_norm=1.0)
    scheduler = LinearLR(optimizer, start_factor=0.1, total_iters=10)
    loader = accelerator.prepare(DataLoader(Counting(256, 64), len(example["tokens"]), shuffle=True))
    losses, loss = [], torch.zeros((), device=accelerator.device)
    for _ in range(num_epochs):
        for batch in loader:
            with accelerator.accumulate():
                loss_of_batch = model(**batch)
                optimizer.backward(loss_of_batch)
                loss += loss_of_batch.detach() / plan.num_micro_batches
                if accelerator.sync_gradients:
                    optimizer.step()
                    scheduler.step()
                    losses.append(accelerator.reduce(loss, "mean").item())
                    loss.zero_()
    save(optimizer, checkpoints, step=len(losses), extra=scheduler.state_dict())
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plan", help="the folder of the plan")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--checkpoints", default="checkpoints", help="a folder that all ranks see")
    given = parser.parse_args()
    losses = train(given.plan, given.epochs, given.checkpoints)
    print("losses", *(f"{loss:.4f}" for loss in losses))
    Accelerator().end_training()
