"""Times steps on a cluster of two speeds: degrees that stay inside nodes, full sharding, and DeepSpeed's ZeRO-3.

    .venv/bin/python benchmarks/fsdp_and_zero3.py --rounds 7

Needs root: nodes are network namespaces (`emulated_cluster.py`). All train the same GPT in fp32 by AdamW in one process
group, a step of each in turn: what else the machine does meets all of them. Figures are medians of the slowest rank's
seconds.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from emulated_cluster import emulated_cluster  # noqa: E402

from examples.gpt import GPT  # noqa: E402
from runtime.fsdp.optimizer import ShardedOptimizer  # noqa: E402
from runtime.fsdp.shard import shard  # noqa: E402
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan  # noqa: E402

NODES, RANKS_PER_NODE = 2, 2
NUM_RANKS = NODES * RANKS_PER_NODE
SEQUENCE, VOCABULARY, WIDTH, DEPTH = 64, 4096, 256, 4
DEGREES = ((2, 2, 4), (1, 1, 4), (1, 2, 2), (1, 1, 2), (2, 2, 2), (1, 1, 1))
BLOCKS = ("tokens", "positions", *(f"layers.{number}" for number in range(DEPTH)), "norm", "head")
LEARNING_RATE = 1e-3
_LINEAR = functional.linear

Step = Callable[[list[Tensor]], float]
"""Trains on one batch for each micro-batch, and returns the last one's loss."""


def _model() -> nn.Module:
    torch.manual_seed(0)
    return GPT(VOCABULARY, SEQUENCE, WIDTH, DEPTH, heads=4, tied=False)


def _sharded(
    degrees: tuple[int, int, int],
    num_micro_batches: int,
    *,
    prefetch: int = 1,
    hierarchical: bool = False,
    is_kept: bool = False,
) -> Step:
    model = _model()
    param_degree, grad_degree, optim_degree = degrees
    secondary_degree = 1 if is_kept else param_degree
    strategy = BlockStrategy(
        BLOCKS, param_degree, secondary_degree, grad_degree, optim_degree, hierarchical=hierarchical
    )
    plan = ShardingPlan(
        (strategy,),
        NUM_RANKS,
        RANKS_PER_NODE,
        num_micro_batches,
        "fp32",
        (RANKS_PER_NODE, NODES),
        prefetch=prefetch,
    )
    sharded = shard(model, plan)
    optimizer = ShardedOptimizer(sharded, torch.optim.AdamW, lr=LEARNING_RATE)

    def step(batches: list[Tensor]) -> float:
        for tokens in batches:
            loss = model(tokens, tokens)
            optimizer.backward(loss)
        optimizer.step()
        sharded.synchronize()
        return float(loss.detach())

    return step


def _fully_sharded(num_micro_batches: int) -> Step:
    model = _model()
    blocks = [model.get_submodule(name) for name in BLOCKS]
    for block in blocks:
        fully_shard(block)
        block._set_unshard_async_op(True)  # type: ignore[operator]
    fully_shard(model)
    for place, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[place + 1 : place + 2])  # type: ignore[operator]
        block.set_modules_to_backward_prefetch(blocks[max(0, place - 1) : place])  # type: ignore[operator]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step(batches: list[Tensor]) -> float:
        for tokens in batches:
            loss = model(tokens, tokens)
            (loss / num_micro_batches).backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return step


def _zero3(num_micro_batches: int) -> Step:
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": num_micro_batches,
        "zero_optimization": {"stage": 3},
        "zero_allow_untested_optimizer": True,
    }
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    engine: Any = deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
    own_linear = functional.linear
    functional.linear = _LINEAR

    def step(batches: list[Tensor]) -> float:
        # Stage 3 brings a linear of its own, for all models of the process: it is for this one alone.
        functional.linear = own_linear
        for tokens in batches:
            loss = engine(tokens, tokens)
            engine.backward(loss)
            engine.step()
        functional.linear = _LINEAR
        return float(loss.detach())

    return step


def steps_of(num_micro_batches: int) -> dict[str, Step]:
    """Returns what is compared, by name."""
    everywhere = (4, 4, 4)
    found = {
        "DeepSpeed ZeRO-3": _zero3(num_micro_batches),
        "fully_shard over all": _fully_sharded(num_micro_batches),
        "(4,4,4)": _sharded(everywhere, num_micro_batches),
        "(4,4,4), nothing ahead": _sharded(everywhere, num_micro_batches, prefetch=0),
        "(4,4,4), kept for backward": _sharded(everywhere, num_micro_batches, is_kept=True),
        "(4,4,4), level by level": _sharded(everywhere, num_micro_batches, hierarchical=True),
    }
    for degrees in DEGREES:
        found[f"({','.join(map(str, degrees))})"] = _sharded(degrees, num_micro_batches)
    found["(1,1,1), level by level"] = _sharded((1, 1, 1), num_micro_batches, hierarchical=True)
    return found


def work(out: Path, num_micro_batches: int, num_rounds: int) -> None:
    """Runs on each rank; the first one writes the seconds of each step by name."""
    import deepspeed

    torch.set_num_threads(1)
    # As `runtime.ranks` does: it would compile an extension for inference first.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo", verbose=False)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    steps = steps_of(num_micro_batches)
    generator = torch.Generator().manual_seed(dist.get_rank())
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(num_rounds + 1):
        batches = [torch.randint(0, VOCABULARY, (1, SEQUENCE), generator=generator) for _ in range(num_micro_batches)]
        losses = {}
        for name, step in steps.items():
            dist.barrier()
            begun = time.perf_counter()
            losses[name] = step(batches)
            took = torch.tensor(time.perf_counter() - begun)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            # The first makes communicators and learns the order of blocks.
            if number:
                seconds[name].append(float(took))
        first = next(iter(losses.values()))
        far = {name: loss for name, loss in losses.items() if abs(loss - first) > 1e-3 * abs(first)}
        assert not far, f"{far} beside {first}"
    if dist.get_rank() == 0:
        out.write_text(json.dumps(seconds))
    dist.barrier()
    dist.destroy_process_group()


def table(seconds: dict[str, list[float]]) -> str:
    """Returns the table of one run: medians, and the median of the rounds' ratios to ZeRO-3."""
    zero3 = seconds["DeepSpeed ZeRO-3"]
    lines = ["| | step, s | least to most | times as fast as ZeRO-3 |", "|---|---:|---|---:|"]
    for name, own in seconds.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(zero3, own, strict=True))
        spread = f"{min(own):.2f} to {max(own):.2f}"
        lines.append(f"| {name} | {statistics.median(own):.2f} | {spread} | {ratio:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Sets the cluster up and prints a table for each number of micro-batches."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--inside-mbit", type=int, default=1000)
    parser.add_argument("--between-mbit", type=int, default=100)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker, given.micro_batches[0], given.rounds)
        return
    with emulated_cluster(NODES, RANKS_PER_NODE, given.inside_mbit, given.between_mbit) as cluster:
        for num_micro_batches in given.micro_batches:
            out = Path(f"/tmp/fsdp_and_zero3_{num_micro_batches}.json")
            cluster.run(
                [
                    *(str(Path(__file__).resolve()), "--worker", str(out), "--rounds", str(given.rounds)),
                    *("--micro-batches", str(num_micro_batches)),
                ],
                timeout_s=1800,
            )
            print(f"\n{num_micro_batches} micro-batches\n\n{table(json.loads(out.read_text()))}", flush=True)


if __name__ == "__main__":
    main()
