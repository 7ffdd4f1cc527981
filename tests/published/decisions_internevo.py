"""InternEvo's crossover: optimizer states over all ranks, (1, 1, N), beside states inside the node, (1, 1, 8).

The messages are those of the ideal schedule on `hgx-a100-80gb-roce4`, but for the update, which InternEvo sends as one
broadcast for each shard. Fitted is the speed of large products, to (1, 1, 8) on 8 ranks.
"""

from __future__ import annotations

from functools import cache

from decisions import Anchor, changed, changed_messages_time, generic
from decoder import published
from scipy.optimize import brentq

from costmodels.engine import Message
from costmodels.fsdp import FSDP
from costmodels.strategy import StepShape, Strategy
from planner.machine import machine

TOLD = published()["internevo_zero1"]
TOKENS_PER_STEP = int(TOLD["tokens_per_gpu_and_step"])
GPUS = tuple(int(number) for number in TOLD["gpus"])
NODE = 8
KEYS = {"node": "os_node", "world": "os_world"}


def tokens_per_s(num_ranks: int, optim_degree: int, *, broadcasts: bool = True, flop_per_s: float = 0.0) -> float:
    """Returns tokens per rank and second of 7B at degrees (1, 1, o), micro-batch 2, M = 4.

    Args:
        num_ranks: N.
        optim_degree: o.
        broadcasts: whether the update is a broadcast for each shard, or the ideal schedule's gathers.
        flop_per_s: of large products; 0: as fitted.
    """
    rate = flop_per_s or fitted_flop_per_s()
    profile = changed("hgx-a100-80gb-roce4", num_ranks // NODE, matmul_flop_per_s={"bf16": rate})
    workload, strategy, shape = generic("InternLM 7B"), Strategy(1, 1, 1, optim_degree), StepShape(num_ranks, 2, 4)
    messages = FSDP.traffic(workload, (strategy,) * workload.num_classes, shape)
    if broadcasts:
        shard_bytes = 2 * workload.num_params // optim_degree
        messages = (
            *(each for each in messages if each.cause != "update"),
            Message("broadcast", 1, optim_degree, shard_bytes, optim_degree, "update"),
        )
    return TOKENS_PER_STEP / changed_messages_time(messages, workload, strategy, shape, machine(profile, "bf16")).step_s


@cache
def fitted_flop_per_s() -> float:
    """Returns the speed of large products with which (1, 1, 8) on 8 ranks is as published."""
    told = float(TOLD["os_node"][0])
    return float(brentq(lambda rate: tokens_per_s(NODE, NODE, flop_per_s=rate) - told, 1e14, 3e14))


def curves() -> tuple[Anchor, ...]:
    """Returns both curves, (1, 1, 8) first."""
    return tuple(
        Anchor(
            "InternEvo 7B",
            f"(1,1,{'8' if spread == 'node' else 'N'}) at {num_ranks} GPUs",
            "tokens/s",
            tokens_per_s(num_ranks, NODE if spread == "node" else num_ranks),
            float(TOLD[key][place]),
        )
        for spread, key in KEYS.items()
        for place, num_ranks in enumerate(GPUS)
    )


def crossover() -> tuple[Anchor, ...]:
    """Returns the throughput of (1, 1, N) over that of (1, 1, 8), by ranks."""
    node, world = curves()[: len(GPUS)], curves()[len(GPUS) :]
    return tuple(
        Anchor(
            "InternEvo 7B",
            f"(1,1,N) over (1,1,8) at {num_ranks} GPUs",
            "times",
            over.predicted / under.predicted,
            over.published / under.published,
        )
        for num_ranks, over, under in zip(GPUS, world, node, strict=True)
    )
