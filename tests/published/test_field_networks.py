"""Networks that people found behind slow steps, and what a plan says of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from field_models import FIELD, GIB, graph_of, with_slow_link

from costmodels.collectives import collective_time
from costmodels.quantized import quantized_gather
from hw_profiles.load import load
from planner import Job, Plan, estimate, plan, sweep
from planner.machine import machine

SLOW = FIELD["slow_link"]
EACH = 10
"""Samples of 1024 tokens on each rank, with which the shipped L4 takes the published seconds on one node."""


@cache
def stage_3_s(num_nodes: int) -> float:
    profile = with_slow_link(num_nodes, int(SLOW["ranks_per_node"]), float(SLOW["link_bytes_per_s"]))
    n = profile.world_size
    job = Job(global_batch_size=EACH * n, micro_batch_size=EACH // 2, recompute="full")
    return estimate(graph_of("1.5B"), profile, job, (n, n, n)).predicted.step_s


def test_stage_3_over_a_slow_link_takes_the_published_seconds() -> None:
    """Compute and link are fitted, to the step of one node and the forward of two; the step of two is predicted."""
    tolerance = float(SLOW["tolerance"])
    assert stage_3_s(1) == pytest.approx(float(SLOW["one_node_s"]["step"]), rel=tolerance)
    assert stage_3_s(2) == pytest.approx(float(SLOW["two_nodes_s"]["step"]), rel=tolerance)


def test_a_second_node_over_a_slow_link_costs_stage_3_more_than_it_adds() -> None:
    assert stage_3_s(2) > 2 * stage_3_s(1)


def test_over_a_slow_link_what_gathers_inside_a_node_comes_first() -> None:
    profile = with_slow_link(2, 2, float(SLOW["link_bytes_per_s"]))
    answer = plan(graph_of("1.5B"), profile, Job(global_batch_size=4 * EACH, micro_batch_size=EACH // 2))
    step_s = {other.name: other.step_s for other in answer.alternatives}
    assert answer.strategies[0].secondary_degree <= 2
    for small in ("MiCS, HSDP of 2", "PaRO IIG of 2", "ZeRO++ hpZ of 2", "ZeRO-1"):
        assert step_s[small] < 0.6 * step_s["ZeRO-3"]


def test_a_sweep_shows_that_three_nodes_are_slower_than_two() -> None:
    """On EFA, three nodes lose the tree of two: NVIDIA/nccl issue 527, in the profile's own figures."""
    answers = sweep(graph_of("1.5B"), "p4d-a100-40gb", Job(global_batch_size=48), [8, 16, 24])
    plans = [answer for answer in answers if isinstance(answer, Plan)]
    one, two, three = (answer.predicted.tokens_per_s for answer in plans)
    assert one < three < two


def gathers(folder: Path, prefetch_elements: int) -> tuple[int, int, float]:
    """Returns bytes, messages and seconds of the gathers of 5B at stage 3 on one node."""
    path = folder / "ds_config.json"
    zero = {"stage": 3, "stage3_prefetch_bucket_size": prefetch_elements, "stage3_max_reuse_distance": 0}
    path.write_text(json.dumps({"zero_optimization": zero, "bf16": {"enabled": True}}))
    job = Job(global_batch_size=32, micro_batch_size=4, recompute="none")
    answer = estimate(graph_of("5B"), load("p4d-a100-40gb", 1), job, ds_config=path)
    rows = [row for row in answer.predicted.traffic if row.operation == "all_gather" and row.degree_to == 8]
    return sum(row.bytes for row in rows), sum(row.count for row in rows), sum(row.seconds for row in rows)


def test_each_gather_takes_a_start_up_whatever_it_carries(tmp_path: Path) -> None:
    joined, single = gathers(tmp_path, 50_000_000), gathers(tmp_path, 1)
    assert joined[0] == single[0]
    assert single[1] > 1.5 * joined[1]
    network = machine(load("p4d-a100-40gb", 1), "bf16").network
    start_up_s = collective_time("all_gather", 1, 8, 8, network).seconds
    assert single[2] - joined[2] == pytest.approx((single[1] - joined[1]) * start_up_s, rel=0.01)


def test_what_gathers_of_an_old_deepspeed_took_is_not_of_the_network(tmp_path: Path) -> None:
    """A published figure that is out of reach, and by how much.

    With DeepSpeed 0.3.16 a forward took 420 ms more at stage 3 than at stage 2, and 210 once gathers were joined and
    copies left out; tuning the buckets helped little. Predicted of the network are 41 to 45 ms, whatever the buckets:
    the rest were calls that waited for the device, of which a shipped machine has nothing; see the next test.
    """
    forward_ms = FIELD["many_gathers"]["forward_ms"]
    published_s = float(forward_ms["stage_3_joined"] - forward_ms["stage_2"]) / 1e3
    of_network_s = [gathers(tmp_path, elements)[2] / 2 for elements in (1, 10_000_000, 200_000_000)]
    assert max(of_network_s) < 1.2 * min(of_network_s)
    assert min(of_network_s) == pytest.approx(published_s / 5, rel=0.1)


@pytest.mark.parametrize(("key", "calls_of_a_module", "error"), [("stage_3", 2, 0.081), ("stage_3_joined", 1, 0.173)])
def test_what_gathers_of_an_old_deepspeed_took_is_what_their_calls_took(
    key: str, calls_of_a_module: int, error: float
) -> None:
    """0.3.16 gathered a module's weight and its bias by a call each, and then both by one; each waited for the other.

    What one call takes of the host was published apart; with it in the profile, the seconds are predicted. Those of
    joined gathers are missed by 17 %: what a call took once they were joined is not told.
    """
    published = FIELD["many_gathers"]
    call_s = float(published["call_us"]["before"] + published["call_us"]["launch"]) / 1e6
    profile = load("p4d-a100-40gb", 1).model_copy(update={"calls_s": {"all_gather": call_s}})
    network = machine(profile, "fp16").network
    workload = graph_of("5B").workload
    whole = [2 * parameter.num_elements for parameter in workload.parameters]
    biases = [2 * parameter.shape[0] for parameter in workload.parameters] * (calls_of_a_module - 1)
    predicted_s = sum(collective_time("all_gather", 1, 8, size, network).seconds for size in (*whole, *biases))
    more_ms = float(published["forward_ms"][key] - published["forward_ms"]["stage_2"])
    assert predicted_s * 1e3 / more_ms - 1 == pytest.approx(error, abs=0.005)


def test_a_secondary_copy_can_lose_by_its_memory() -> None:
    """24 ranks, as in the report: what fits without recomputation beside one copy does not beside two."""
    profile = load("dgx-a100-80gb", int(FIELD["zeropp_at_24"]["ranks"]) // 8)
    job = Job(global_batch_size=384, micro_batch_size=4, memory_budget_bytes=43 * GIB)
    answer = plan(graph_of("7B"), profile, job)
    step_s = {other.name: other.step_s for other in answer.alternatives}
    assert answer.alternatives[0].name == "ZeRO-3"
    assert step_s["ZeRO++ hpZ of 8"] > 1.01 * step_s["ZeRO-3"]


def test_quantized_weights_are_not_legal_on_24_ranks() -> None:
    """A shard of a square matrix is no whole number of the quantizer's blocks of eight."""
    assert quantized_gather(4096 * 4096, int(FIELD["zeropp_at_24"]["ranks"])) is None
    assert quantized_gather(4096 * 4096, 16) is not None
