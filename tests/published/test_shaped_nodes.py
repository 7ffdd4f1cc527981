"""The order of eight strategies as measured on two nodes with a slow link between them."""

from __future__ import annotations

from itertools import combinations

from decoder import one_block, published

from costmodels.fsdp import FSDP
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.step import step_time
from costmodels.strategy import StepShape, Strategy

NETWORK = Network((NetworkLevel(2, 2e9, 1e-4), NetworkLevel(2, 50e6, 3e-4)))
CPU = DeviceSpeed(matmul_flop_per_s=5e10, memory_bytes_per_s=1e10, operator_launch_s=0.0, overlap=0.0)
"""Ranks compute and communicate with the same cores, so nothing overlaps."""


def predicted_s(p: int, g: int, o: int) -> float:
    """Returns the communication of a step; compute is the same for all."""
    workload, assignment, shape = one_block(7_400_000), (Strategy(p, p, g, o),), StepShape(4, 1, 2, "fp32", "adamw")
    time = step_time(workload, FSDP.traffic(workload, assignment, shape), assignment, shape, NETWORK, CPU)
    return time.exposed_communication_s


def test_no_two_plans_are_measured_against_their_predicted_order() -> None:
    table = published()["shaped_nodes"]
    apart = 1 + float(table["tolerance"]["apart"])
    seconds = [(predicted_s(*map(int, degrees)), float(measured_s)) for degrees, measured_s in table["seconds"]]
    told_apart = [
        (first[1], second[1])
        for first, second in combinations(sorted(seconds, reverse=True), 2)
        if first[0] > apart * second[0]
    ]
    assert len(told_apart) >= 15
    assert all(slower_s > faster_s for slower_s, faster_s in told_apart)
