"""Quantized communication: only where it is allowed and DeepSpeed can, with the bytes and the time that it takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from transformer_graph import SMALL, transformer_graph

from costmodels.communication import message_times
from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.engine import Assignment, Message
from costmodels.network import DeviceSpeed
from costmodels.strategy import Precision, StepShape, Strategy
from costmodels.workload import Parameter, Workload
from hw_profiles.load import load
from planner import Job, plan
from planner.choose.ds_config import ds_config
from planner.machine import machine
from planner.model_graph import ModelGraph

N, NODE = 32, 16
WEIGHTS = Strategy(N, N, N, N, quantized_weights=True)
GRADIENTS = Strategy(N, N, N, N, quantized_gradients=True)
ALL_THREE = Strategy(N, NODE, N, N, quantized_weights=True, quantized_gradients=True)
SHAPE = replace(SMALL, num_layers=3)


def graph(precision: Precision = "fp16") -> ModelGraph:
    return transformer_graph(SHAPE, precision=precision)


def step(precision: Precision = "fp16", ranks_per_node: int = NODE, num_micro_batches: int = 1) -> StepShape:
    return StepShape(N, 1, num_micro_batches, precision, "adamw", "cuda", ranks_per_node)


def everywhere(strategy: Strategy) -> Assignment:
    return (strategy,) * graph().workload.num_classes


def sent(strategy: Strategy, workload: Workload | None = None) -> tuple[Message, ...]:
    workload = workload or graph().workload
    return DEEPSPEED.traffic(workload, (strategy,) * workload.num_classes, step())


def total(messages: tuple[Message, ...], operation: str, cause: str) -> int:
    return sum(each.total_bytes for each in messages if (each.operation, each.cause) == (operation, cause))


RULES = [
    (WEIGHTS, replace(step(), device="cpu"), "GPUs only"),
    (WEIGHTS, step("fp32"), "16 bits"),
    (replace(WEIGHTS, offload="optimizer"), step(), "not planned with offload"),
    (Strategy(1, 1, N, N, quantized_weights=True), step(), "stage 3 alone"),
    (GRADIENTS, step("bf16"), "reads gradients as fp16"),
    (GRADIENTS, step(ranks_per_node=N), "one node"),
]


@pytest.mark.parametrize(("strategy", "shape", "reason"), RULES, ids=[reason for *_, reason in RULES])
def test_what_deepspeed_cannot_quantize_is_refused_with_the_reason(
    strategy: Strategy, shape: StepShape, reason: str
) -> None:
    assert reason in (DEEPSPEED.refusal(graph().workload, everywhere(strategy), shape) or "")


@pytest.mark.parametrize("strategy", [WEIGHTS, GRADIENTS, ALL_THREE], ids=["qwZ", "qgZ", "ZeRO++"])
def test_what_deepspeed_can_quantize_is_not_refused(strategy: Strategy) -> None:
    assert DEEPSPEED.refusal(graph().workload, everywhere(strategy), step()) is None


def with_embedding(num_rows: int) -> Workload:
    workload = graph().workload
    first, *others = workload.parameters
    return replace(workload, parameters=(Parameter(first.name, (num_rows, first.shape[1])), *others))


def test_a_shard_that_is_no_multiple_of_8_cannot_be_gathered_as_int8() -> None:
    """ZeRO++ is not legal on 24 ranks: 4096 x 4096 over 24 is no whole number of eights."""
    shape = replace(step(), world_size=24, ranks_per_node=8)
    strategy = Strategy(24, 24, 24, 24, quantized_weights=True)
    reason = DEEPSPEED.refusal(graph().workload, everywhere(strategy), shape)
    assert reason is not None
    assert "multiple of 8" in reason
    assert "24 ranks" in reason


def test_scales_that_ranks_do_not_divide_cannot_be_reduced_as_int4() -> None:
    """One scale for each row, and 32 ranks for 50,258 of them."""
    workload = with_embedding(50_258)
    assert workload.parameters[0].num_elements % (2 * N) == 0
    reason = DEEPSPEED.refusal(workload, (GRADIENTS,) * workload.num_classes, step())
    assert reason is not None
    assert f"{workload.parameters[0].name}, 50258 of them" in reason


def test_int8_halves_the_gathers_but_for_scales_and_leaves_reductions_alone() -> None:
    plain, quantized = sent(replace(WEIGHTS, quantized_weights=False)), sent(WEIGHTS)
    for cause in ("forward", "backward"):
        ratio = total(quantized, "all_gather", cause) / total(plain, "all_gather", cause)
        assert 0.5 < ratio < 0.56  # small shards have a scale each
    for operation, cause in (("reduce_scatter", "backward"), ("all_gather", "update"), ("all_reduce", "control")):
        assert total(quantized, operation, cause) == total(plain, operation, cause)


def test_int4_reduces_in_two_hops_a_quarter_inside_the_node_and_the_rest_of_it_between_nodes() -> None:
    plain, quantized = sent(replace(GRADIENTS, quantized_gradients=False)), sent(GRADIENTS)
    matrices = sum(2 * p.num_elements for p in graph().workload.parameters if len(p.shape) > 1)
    hops: Counter[tuple[int, int]] = Counter()
    for each in quantized:
        if each.operation == "all_to_all":
            hops[each.degree_from, each.degree_to] += each.total_bytes
    assert set(hops) == {(1, NODE), (NODE, N)}
    assert matrices / 4 < hops[1, NODE] < matrices / 4 * 1.2
    assert matrices / 4 / NODE < hops[NODE, N] < matrices / 4 / NODE * 1.2
    vectors = total(quantized, "reduce_scatter", "backward")
    assert 0 < vectors < total(plain, "reduce_scatter", "backward") - matrices + 2 * N * len(quantized)


def test_quantizing_takes_the_time_of_what_it_reads_and_writes() -> None:
    seen = machine(load("dgx2-v100-32gb", 2), "fp16")
    slow = DeviceSpeed(1.0, 1e9, 0.0, 1.0)
    message = Message("all_gather", 1, N, 10**6, 1, "forward", converted_bytes=3 * 10**6)
    ((bare_ns, _),) = message_times((message,), seen.network)
    ((whole_ns, _),) = message_times((message,), seen.network, slow)
    assert whole_ns - bare_ns == 3 * 10**6


def test_a_quantized_gather_needs_room_to_be_dequantized() -> None:
    plain = DEEPSPEED.memory(graph().workload, everywhere(replace(WEIGHTS, quantized_weights=False)), step())
    quantized = DEEPSPEED.memory(graph().workload, everywhere(WEIGHTS), step())
    assert quantized.at_rest == plain.at_rest
    for more, less in zip(quantized.throughout, plain.throughout, strict=True):
        assert more.total_bytes > less.total_bytes


def test_the_config_has_the_keys_of_what_is_quantized() -> None:
    section = ds_config(graph().workload, everywhere(ALL_THREE), step())["zero_optimization"]
    assert section["zero_quantized_weights"] is section["zero_quantized_gradients"] is True
    assert section["zero_hpz_partition_size"] == NODE
    assert section["reduce_scatter"] is True
    exact = ds_config(graph().workload, everywhere(Strategy(N, NODE, N, N)), step())["zero_optimization"]
    assert not [key for key in exact if "quantized" in key]


def test_alternatives_have_zero_plus_plus_marked_as_lossy_only_when_it_is_allowed() -> None:
    job = Job(global_batch_size=512, precision="fp16", engine="deepspeed", allow_lossy=True)
    profile = load("dgx2-v100-32gb", 2)
    names = [each.name for each in plan(graph(), profile, job).alternatives]
    assert f"ZeRO++ of qwZ, hpZ of {NODE} and qgZ (lossy)" in names
    exact = plan(graph(), profile, job.model_copy(update={"allow_lossy": False}))
    assert not any("lossy" in each.name for each in exact.alternatives)
    assert not any("lossy" in text for text in exact.warnings)


def test_a_lossy_plan_says_what_it_changes_and_an_exact_one_why_nothing_is() -> None:
    slow = load("dgx2-v100-32gb", 2)
    network = slow.levels[-1].model_copy(update={"unit_bytes_per_s": 1e8})
    slow = slow.model_copy(update={"levels": (*slow.levels[:-1], network)})
    job = Job(global_batch_size=32, precision="fp16", engine="deepspeed", allow_lossy=True, memory_budget_bytes=10**8)
    answer = plan(graph(), slow, job)
    assert any(strategy.quantized_weights or strategy.quantized_gradients for strategy in answer.strategies)
    assert any(text.startswith("lossy: ") for text in answer.warnings)
    local = plan(graph("fp32"), load("dgx2-v100-32gb", 2), job.model_copy(update={"precision": "fp32"}))
    (text,) = (each for each in local.warnings if "--allow-lossy" in each)
    assert text.startswith("--allow-lossy changes nothing: DeepSpeed's quantizer works on 16 bits")
