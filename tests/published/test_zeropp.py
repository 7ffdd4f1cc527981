"""ZeRO++'s published volumes, memory and times, recomputed."""

from __future__ import annotations

import pytest
from decoder import decoder, one_block, published
from network_anchors import Anchor
from volumes import crossing_volumes

from costmodels.fsdp import FSDP
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.states import model_state_bytes
from costmodels.step import StepTime, step_time
from costmodels.strategy import StepShape, Strategy

RANKS_PER_NODE = 16
NODE = NetworkLevel(RANKS_PER_NODE, 120e9, 5e-6)
PORT_BYTES_PER_S = 8.2e9
"""One 100 Gb/s port at the rate that published.json derives."""
V100 = DeviceSpeed(matmul_flop_per_s=88e12, memory_bytes_per_s=790e9, operator_launch_s=0.0, overlap=1.0)
TUTORIAL = published()["zeropp_tutorial"]
SHAPE_18B = {"layers": 40, "hidden": 6144, "vocab": 50304, "mlp_width": 8 * 6144, "tied": True}


@pytest.mark.parametrize("anchor", crossing_volumes(), ids=lambda anchor: f"{anchor.run} {anchor.figure}")
def test_volumes_between_nodes_in_units_of_the_model(anchor: Anchor) -> None:
    """Blocks of quantized messages carry scales, which the published figures leave out."""
    assert anchor.predicted == pytest.approx(anchor.published, rel=0.01)


def test_resident_memory_of_18b_on_64_ranks() -> None:
    states = model_state_bytes(one_block(18_440_000_000), (Strategy(*[64] * 4),), StepShape(64, 1, 1, "fp16", "adam"))
    logged = float(TUTORIAL["zero3"]["allocated_MiB"])
    assert states.total_bytes / 2**20 == pytest.approx(logged, rel=float(TUTORIAL["tolerance"]["resident"]))


def test_a_secondary_copy_of_18b_in_16_ranks_costs_what_the_peaks_differ_by() -> None:
    strategy = Strategy(64, 16, 64, 64)
    states = model_state_bytes(one_block(18_440_000_000), (strategy,), StepShape(64, 1, 1, "fp16", "adam"))
    grown = float(TUTORIAL["zeropp"]["max_allocated_MiB"] - TUTORIAL["zero3"]["max_allocated_MiB"])
    assert states.secondary / 2**20 == pytest.approx(grown, rel=float(TUTORIAL["tolerance"]["secondary"]))


def zero_3(num_nodes: int, num_tokens: int, node_bytes_per_s: float) -> StepTime:
    """Times a step of ZeRO-3 with full recomputation for 18B."""
    workload = decoder(**SHAPE_18B, num_tokens=num_tokens)
    world_size = num_nodes * RANKS_PER_NODE
    assignment = (Strategy(*[world_size] * 4, "full"),) * workload.num_classes
    shape = StepShape(world_size, 1, 1, "fp16", "adam")
    network = Network((NODE, NetworkLevel(num_nodes, node_bytes_per_s, 2e-5)))
    return step_time(workload, FSDP.traffic(workload, assignment, shape), assignment, shape, network, V100)


def test_18b_has_the_size_of_the_logged_checkpoint() -> None:
    assert decoder(**SHAPE_18B, num_tokens=1).num_params == pytest.approx(18.44e9, rel=0.003)


def test_forward_and_backward_times_of_zero_3_on_a_slow_network() -> None:
    time = zero_3(num_nodes=4, num_tokens=512, node_bytes_per_s=PORT_BYTES_PER_S)
    forward_ms = (time.compute.forward_ns + time.exposed.forward_ns) / 1e6
    backward_ms = (time.compute.backward_ns + time.exposed.backward_ns) / 1e6
    logged, tolerance = TUTORIAL["zero3"], TUTORIAL["tolerance"]
    assert forward_ms == pytest.approx(float(logged["forward_ms"]), rel=float(tolerance["forward"]))
    assert backward_ms == pytest.approx(float(logged["backward_ms"]), rel=float(tolerance["backward"]))


@pytest.mark.parametrize("row", [row for row in published()["zeropp_throughput"]["rows"] if row[1] == 1])
def test_throughput_of_zero_3_on_one_port_per_node(row) -> None:
    _, ports, num_tokens, published_tflops, _ = row
    time = zero_3(num_nodes=24, num_tokens=int(num_tokens), node_bytes_per_s=int(ports) * PORT_BYTES_PER_S)
    # The paper counts a recomputed step as 8 FLOP per parameter and token.
    tflops = 8 * 18.44e9 * int(num_tokens) / time.step_s / 1e12
    tolerance = float(published()["zeropp_throughput"]["tolerance"]["one_port"])
    assert tflops == pytest.approx(float(published_tflops), rel=tolerance)
