"""Times steps of `shard` and of plain `fully_shard` in turn, in one process group, on one machine.

    .venv/bin/python benchmarks/fsdp_overhead.py --pairs 40

Both train the same GPT from the same weights in fp32, gather one block ahead, and update by fused AdamW: plain
`fully_shard` its DTensors, `shard` its slices. A pair is a step of one right after a step of the other, the first of
them in turn; the ratio of a pair is what the machine's other work changes least.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from examples.gpt import GPT  # noqa: E402
from runtime.fsdp.optimizer import ShardedOptimizer  # noqa: E402
from runtime.fsdp.shard import shard  # noqa: E402
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan  # noqa: E402

Step = Callable[[Tensor], float]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is trained by both."""

    num_ranks: int
    param_degree: int
    """Of (k, k, k); N is full sharding, less is HSDP."""
    width: int
    depth: int
    vocabulary: int
    sequence_length: int
    num_pairs: int


def model_of(setting: Setting) -> nn.Module:
    """Returns the model with weights that are equal on all ranks."""
    torch.manual_seed(0)
    return GPT(setting.vocabulary, setting.sequence_length, setting.width, setting.depth, heads=8, tied=False)


def blocks_of(model: nn.Module) -> list[str]:
    """Returns the names of what is gathered at once."""
    layers = [name for name, module in model.named_children() if isinstance(module, nn.ModuleList)]
    found: list[str] = []
    for name, child in model.named_children():
        if name in layers:
            found += [f"{name}.{number}" for number in range(len(child))]  # type: ignore[arg-type]
        elif any(True for _ in child.parameters()):
            found.append(name)
    return found


def plain_step(setting: Setting) -> Step:
    """Returns a step of `fully_shard` alone."""
    model = model_of(setting)
    blocks = [model.get_submodule(name) for name in blocks_of(model)]
    if setting.param_degree == setting.num_ranks:
        mesh = init_device_mesh("cpu", (setting.num_ranks,), mesh_dim_names=("shard",))
    else:
        shape = (setting.num_ranks // setting.param_degree, setting.param_degree)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
        block._set_unshard_async_op(True)  # type: ignore[operator]
    fully_shard(model, mesh=mesh)
    for place, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[place + 1 : place + 2])  # type: ignore[operator]
        block.set_modules_to_backward_prefetch(blocks[max(0, place - 1) : place])  # type: ignore[operator]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(tokens: Tensor) -> float:
        loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def own_step(setting: Setting) -> Step:
    """Returns a step of the runtime, its parameters spread within it."""
    model = model_of(setting)
    degree = setting.param_degree
    strategy = BlockStrategy(tuple(blocks_of(model)), degree, degree, degree, degree)
    plan = ShardingPlan((strategy,), setting.num_ranks, setting.num_ranks, 1, "fp32", (setting.num_ranks,))
    sharded = shard(model, plan)
    optimizer = ShardedOptimizer(sharded, torch.optim.AdamW, lr=1e-3)

    def step(tokens: Tensor) -> float:
        loss = model(tokens, tokens)
        optimizer.backward(loss)
        optimizer.step()
        sharded.synchronize()
        return float(loss.detach())

    return step


def _rank(rank: int, setting: Setting, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=setting.num_ranks)
    steps = (plain_step(setting), own_step(setting))
    generator = torch.Generator().manual_seed(rank)
    batches = [
        torch.randint(0, setting.vocabulary, (1, setting.sequence_length), generator=generator)
        for _ in range(setting.num_pairs + 2)
    ]
    seconds: list[list[float]] = [[], []]
    processor_s: list[list[float]] = [[], []]
    for number, tokens in enumerate(batches):
        losses = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            dist.barrier()
            begun, begun_processor_s = time.perf_counter(), time.process_time()
            losses[which] = steps[which](tokens)
            dist.barrier()
            # The first two make communicators, memory and the order of gathers.
            if number >= 2:
                seconds[which].append(time.perf_counter() - begun)
                processor_s[which].append(_mean(time.process_time() - begun_processor_s))
        assert abs(losses[0] - losses[1]) < 1e-3 * abs(losses[0]), losses
    if rank == 0:
        torch.save((seconds, processor_s), f"{folder}/seconds")
    dist.barrier()
    dist.destroy_process_group()


def _mean(value: float) -> float:
    """Returns the mean over ranks."""
    values = torch.tensor(value / dist.get_world_size(), dtype=torch.float64)
    dist.all_reduce(values)
    return float(values)


Pairs = tuple[list[float], list[float]]
"""Of each step: of plain `fully_shard`, and of the runtime."""


def measure(setting: Setting) -> tuple[Pairs, Pairs]:
    """Returns the seconds of each step, and the processor's seconds of a rank, threads of gloo included."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(_rank, (setting, folder), setting.num_ranks)  # type: ignore[no-untyped-call]
        seconds, processor_s = torch.load(f"{folder}/seconds")
    return tuple(seconds), tuple(processor_s)


def row(name: str, seconds: Pairs, processor_s: Pairs) -> str:
    """Returns a line of the table: medians, and the spread of the pairs' ratios."""
    cells = [name, str(len(seconds[0]))]
    for plain, own in (seconds, processor_s):
        ratios = sorted(ours / theirs for ours, theirs in zip(own, plain, strict=True))
        quarter = len(ratios) // 4
        overhead = [100 * (ratio - 1) for ratio in (statistics.median(ratios), ratios[quarter], ratios[-1 - quarter])]
        cells += [f"{statistics.median(plain):.3f}", f"{statistics.median(own):.3f}"]
        cells.append("{:+.1f} % ({:+.1f} to {:+.1f})".format(*overhead))
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measures full sharding and HSDP, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--degrees", type=int, nargs="+", default=[4, 2])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--sequence-length", type=int, default=128)
    given = parser.parse_args()
    print("| degrees | pairs | fully_shard, s | shard, s | more | of processors: fully_shard, s | shard, s | more |")
    print("|---|---:|---:|---:|---|---:|---:|---|")
    for degree in given.degrees:
        setting = Setting(
            given.ranks, degree, given.width, given.depth, given.vocabulary, given.sequence_length, given.pairs
        )
        print(row(f"({degree},{degree},{degree}) of {given.ranks}", *measure(setting)), flush=True)


if __name__ == "__main__":
    main()
