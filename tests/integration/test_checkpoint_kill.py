"""Ranks that are killed while they save leave the last complete checkpoint usable."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import checkpoint_training as training
import pytest
import torch
import torch.distributed as dist
from fsdp_training import plan_of
from gloo_ranks import GlooRanks
from torch import nn

from runtime.checkpoint.folder import latest
from runtime.checkpoint.load import load
from runtime.checkpoint.save import save, save_async
from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard

NUM_RANKS = 2


def make() -> ShardedOptimizer:
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    names = tuple(str(number) for number in range(4))
    plan = plan_of(names, (1, 1, 2, NUM_RANKS), 1, "fp32", NUM_RANKS)
    return ShardedOptimizer(shard(model, plan), torch.optim.SGD, lr=0.0, momentum=0.9)


def fill(optimizer: ShardedOptimizer, step: int) -> None:
    """Makes all that is saved tell its step."""
    optimizer.sharded.synchronize()
    with torch.no_grad():
        for values in optimizer.slices.values():
            values.fill_(step)
            optimizer.state[values]["momentum_buffer"].fill_(-step)


def save_for_ever(folder: str, aside: bool) -> None:
    torch.manual_seed(0)
    optimizer = make()
    optimizer.backward(optimizer.sharded.model(torch.ones(1, 256)).sum())
    optimizer.step()
    found = latest(folder)
    step = load(optimizer, folder).step if found else 0
    while True:
        step += 1
        fill(optimizer, step)
        (save_async if aside else save)(optimizer, folder, step=step, extra=step, keep=2)
        if dist.get_rank() == 0:
            Path(folder, "started").write_text(str(step))


def is_of_one_step(folder: str) -> tuple[int, bool]:
    """Loads the last checkpoint on ranks; returns its step, and whether all in it is of this step."""
    optimizer = make()
    loaded = load(optimizer, folder)
    values = [each.detach() for each in optimizer.slices.values()]
    moments = [optimizer.state[each]["momentum_buffer"] for each in optimizer.slices.values()]
    whole = all(bool((each == loaded.step).all()) for each in values)
    whole = whole and all(bool((each == -loaded.step).all()) for each in moments)
    return loaded.step, whole and loaded.extra == loaded.step


def kill_while_saving(folder: Path, aside: bool, seconds: float, only: int | None) -> None:
    """Starts ranks that save, and kills all of them or one at a moment after their first checkpoint."""
    with GlooRanks(NUM_RANKS) as ranks:
        for end in ranks._ends:
            end.send((save_for_ever, (str(folder), aside)))
        give_up = time.monotonic() + 120
        while not (folder / "started").exists():
            assert time.monotonic() < give_up
            time.sleep(0.01)
        (folder / "started").unlink()
        time.sleep(seconds)
        for rank, pid in enumerate(ranks.pids):
            if only in (None, rank):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def check_kills(folder: Path, num_kills: int, seed: int) -> None:
    moments = random.Random(seed)
    last = 0
    for number in range(num_kills):
        only = [None, 0, 1][number % 3]
        kill_while_saving(folder, number % 2 == 1, moments.uniform(0.0, 0.3), only)
        tensors = training.tensors_of(folder)
        found = latest(folder)
        assert found is not None
        step = int(found.name.removeprefix("step-").partition(".")[0])
        assert step >= last
        last = step
        wrong = [key for key, each in tensors.items() if not bool((each.abs() == step).all())]
        assert wrong == []
    with GlooRanks(NUM_RANKS) as ranks:
        assert ranks.run(is_of_one_step, str(folder)) == [(last, True)] * NUM_RANKS


def test_a_kill_while_saving_leaves_the_last_checkpoint_usable(tmp_path: Path) -> None:
    check_kills(tmp_path, num_kills=2, seed=0)


@pytest.mark.slow
def test_kills_at_20_random_moments_leave_the_last_checkpoint_usable(tmp_path: Path) -> None:
    check_kills(tmp_path, num_kills=20, seed=1)
