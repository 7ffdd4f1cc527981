"""ZeRO++ beside ZeRO-3 on DGX-2 over 1 and 4 ports: times of DeepSpeed's cost model, two numbers fitted.

The machine is the shipped `dgx2-v100-32gb` with its network at 1 or 4 ports of 100 Gb/s. Fitted are the speed of large
products, to what a further 1,024 tokens take over 4 ports, the same with and without ZeRO++; and what large messages
reach of a port, to the four phases that the tutorial logs (4 nodes). How much faster ZeRO++ is on 24 nodes is
predicted. Nothing is hidden: in the tutorial's log the backward of ZeRO++ takes its traffic and its arithmetic, one
after the other, and over 4 ports, too, more tokens take more time whatever there is to send.
"""

from __future__ import annotations

import math

from decisions import Anchor, changed, time_of, traced
from decoder import published

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.step import StepTime
from costmodels.strategy import StepShape, Strategy
from planner.machine import machine

TUTORIAL = published()["zeropp_tutorial"]
ROWS = published()["zeropp_throughput"]["rows"]
PORT_BYTES_PER_S = 12.5e9
PORT_EFFICIENCY = 0.96
"""Fitted, see `misfit`."""
FLOP_PER_S = 123e12
"""Fitted, see `further_s`; near the vendor's peak, since products of more tokens are also faster."""
RANKS_PER_NODE = 16
SYSTEMS = {"zero3": "ZeRO-3", "zeropp": "ZeRO++"}
PAPER_FLOP_PER_TOKEN = 8 * 18.44e9
"""The paper counts a recomputed step as 8 FLOP per parameter and token."""


def step(
    system: str,
    num_nodes: int,
    ports: int,
    num_tokens: int,
    efficiency: float = PORT_EFFICIENCY,
    overlap: float = 0.0,
    flop_per_s: float = FLOP_PER_S,
) -> StepTime:
    """Returns a step of 18B, full recomputation, M = 1.

    Args:
        system: of `SYSTEMS`.
        num_nodes: of 16 ranks.
        ports: of 100 Gb/s that a node has.
        num_tokens: of each rank: sequences of 512.
        efficiency: what large messages reach of a port.
        overlap: part of communication that runs beside compute.
        flop_per_s: of large products.
    """
    rate, speed = {1: ports * PORT_BYTES_PER_S}, {"fp16": flop_per_s}
    profile = changed("dgx2-v100-32gb", num_nodes, rate, efficiency, overlap=overlap, matmul_flop_per_s=speed)
    on = machine(profile, "fp16")
    n = on.world_size
    is_zeropp = system == "zeropp"
    strategy = Strategy(n, RANKS_PER_NODE if is_zeropp else n, n, n, "full", is_zeropp, is_zeropp)
    shape = StepShape(n, num_tokens // 512, 1, "fp16", "adam", ranks_per_node=RANKS_PER_NODE)
    return time_of(DEEPSPEED, traced("18B").workload, strategy, shape, on)


def phases(efficiency: float = PORT_EFFICIENCY, overlap: float = 0.0) -> tuple[Anchor, ...]:
    """Returns the phases that the tutorial logs."""
    found = []
    for system, name in SYSTEMS.items():
        time = step(system, 4, 1, 512, efficiency, overlap)
        for phase in ("forward", "backward"):
            seconds = (getattr(time.compute, f"{phase}_ns") + getattr(time.exposed, f"{phase}_ns")) / 1e9
            logged_s = float(TUTORIAL[system][f"{phase}_ms"]) / 1e3
            found.append(Anchor("ZeRO++ tutorial, 4 nodes", f"{phase} of {name}", "s", seconds, logged_s))
    return tuple(found)


def misfit(efficiency: float) -> float:
    """Returns the squared relative errors of the tutorial's phases: least where the efficiency is fitted."""
    return sum(math.log(each.predicted / each.published) ** 2 for each in phases(efficiency))


def further_s() -> tuple[Anchor, ...]:
    """Returns what a further 1,024 tokens take over 4 ports: the arithmetic of them, whatever is sent."""
    _, _, fewer, more = ROWS
    found = []
    for place, (system, name) in enumerate(SYSTEMS.items(), start=3):
        predicted_s = step(system, 24, 4, 2048).step_s - step(system, 24, 4, 1024).step_s
        few_s, many_s = (PAPER_FLOP_PER_TOKEN * int(row[2]) / (float(row[place]) * 1e12) for row in (fewer, more))
        run = "ZeRO++ paper, 24 nodes, 4 x 100 Gb/s"
        found.append(Anchor(run, f"1,024 further tokens, {name}", "s", predicted_s, many_s - few_s))
    return tuple(found)


def throughputs(overlap: float = 0.0) -> tuple[Anchor, ...]:
    """Returns the TFLOPS of each system, and then of each row how much faster ZeRO++ is."""
    rates, ratios = [], []
    for _, ports, num_tokens, *tflops in ROWS:
        run = f"ZeRO++ paper, 24 nodes, {ports} x 100 Gb/s, {num_tokens} tokens"
        found = []
        for (system, name), told in zip(SYSTEMS.items(), tflops, strict=True):
            time = step(system, 24, int(ports), int(num_tokens), overlap=overlap)
            rate = PAPER_FLOP_PER_TOKEN * int(num_tokens) / time.step_s / 1e12
            found.append(Anchor(run, name, "TFLOPS", rate, float(told)))
        three, plus = found
        rates += found
        ratio = plus.predicted / three.predicted
        ratios.append(Anchor(run, "ZeRO++ over ZeRO-3", "times", ratio, plus.published / three.published))
    return (*rates, *ratios)


def ratios(overlap: float = 0.0) -> tuple[Anchor, ...]:
    """Returns how much faster ZeRO++ is, by row."""
    return tuple(each for each in throughputs(overlap) if each.unit == "times")
