"""Three systems on 48 nodes of Frontier: their order and ratios, for a batch that the paper does not tell.

ZeRO-3 and ZeRO++ are DeepSpeed's; the three-level partition, built upon ZeRO++ with its quantized messages, is the
ideal schedule of (2, 8, N) with int8 gathers inside a package and int4 reductions inside a node. Fitted is what the
network's large messages reach, to the two ratios together; micro-batch 1, M = 16 and that nothing is hidden are
assumed. The model has the shape of GPT-NeoX-20B.
"""

from __future__ import annotations

from dataclasses import replace

from decisions import Anchor, changed, changed_messages_time, generic, time_of
from decoder import published

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.engine import Message
from costmodels.fsdp import FSDP
from costmodels.quantized import QuantizedMessage, converted_bytes, quantized_gather
from costmodels.strategy import StepShape, Strategy
from planner.machine import machine

TOLD = published()["frontier"]
NUM_NODES, RANKS_PER_NODE, RANKS_PER_PACKAGE = 48, 8, 2
NETWORK_EFFICIENCY = 0.4
"""Fitted; the shipped profile assumes 0.75."""
NUM_MICRO_BATCHES = 16
_SCALE_BYTES = 4
_MOST_ROWS = 4 * 6144
"""Of a matrix of the model: each row of a gradient has a scale of its own."""


def step_s(
    system: str,
    efficiency: float = NETWORK_EFFICIENCY,
    num_micro_batches: int = NUM_MICRO_BATCHES,
    overlap: float = 0.0,
) -> float:
    """Returns the seconds of a step of 20B, micro-batch 1, full recomputation.

    Args:
        system: zero3, zeropp, hpz (a secondary copy alone), three_level or three_level_unquantized.
        efficiency: what large messages reach of the network.
        num_micro_batches: M.
        overlap: part of communication that runs beside compute.
    """
    on = machine(changed("frontier-mi250x", NUM_NODES, efficiency=efficiency, overlap=overlap), "fp16")
    n, node, workload = on.world_size, RANKS_PER_NODE, generic("20B")
    shape = StepShape(n, 1, num_micro_batches, "fp16", "adam", ranks_per_node=node)
    if system.startswith("three_level"):
        strategy = Strategy(RANKS_PER_PACKAGE, RANKS_PER_PACKAGE, node, n, "full")
        messages = FSDP.traffic(workload, (strategy,) * workload.num_classes, shape)
        if system == "three_level":
            messages = tuple(quantized(each) for each in messages)
        return changed_messages_time(messages, workload, strategy, shape, on).step_s
    secondary = n if system == "zero3" else node
    strategy = Strategy(n, secondary, n, n, "full", system == "zeropp", system == "zeropp")
    return time_of(DEEPSPEED, workload, strategy, shape, on).step_s


def quantized(message: Message) -> Message:
    """Returns a block's gather as int8, and its reduction inside a node as one all-to-all of int4."""
    found = None
    if message.cause in ("forward", "backward") and message.operation == "all_gather":
        found = quantized_gather(message.message_bytes // 2, message.degree_to)
    elif message.cause == "backward":
        scales_bytes = _MOST_ROWS * _SCALE_BYTES
        found = QuantizedMessage("all_to_all", 1, message.degree_to, message.message_bytes // 4, scales_bytes)
    if found is None:
        return message
    return replace(
        message,
        operation=found.operation,
        message_bytes=found.message_bytes,
        converted_bytes=round(converted_bytes(found)),
    )


def ratios(
    efficiency: float = NETWORK_EFFICIENCY, num_micro_batches: int = NUM_MICRO_BATCHES, overlap: float = 0.0
) -> tuple[Anchor, ...]:
    """Returns how much faster than ZeRO-3 each system is."""
    zero_3_s = step_s("zero3", efficiency, num_micro_batches, overlap)
    return tuple(
        Anchor(
            f"Frontier, 384 GCDs, 20B, M = {num_micro_batches}",
            f"{name} over ZeRO-3",
            "times",
            zero_3_s / step_s(system, efficiency, num_micro_batches, overlap),
            float(TOLD[key]),
        )
        for system, key, name in (
            ("zeropp", "zeropp", "ZeRO++"),
            ("three_level", "three_level_2_8_N", "three-level (2, 8, N), quantized"),
            ("three_level_unquantized", "three_level_2_8_N", "three-level (2, 8, N), fp16"),
        )
    )


def misfit(efficiency: float) -> float:
    """Returns the greatest relative error of the two published ratios: least where the efficiency is fitted."""
    zeropp, three_level, _ = ratios(efficiency)
    return max(abs(zeropp.error), abs(three_level.error))
