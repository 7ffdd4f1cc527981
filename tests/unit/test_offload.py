"""States in host memory: what moves, how long it takes, what is left on the device, and when it is chosen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hand_workload import one_block
from transformer_graph import SMALL, transformer_graph

from costmodels.compute import class_update_ns
from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.deepspeed.memory import host_bytes
from costmodels.network import DeviceSpeed, HostSpeed
from costmodels.offload import gathered_width, host_width, moved_width
from costmodels.states import state_widths
from costmodels.strategy import Offload, StepShape, Strategy
from hw_profiles.load import load
from planner import Infeasible, Job, estimate, pareto, plan, sweep
from planner.choose.ds_config import ds_config
from planner.errors import DoesNotFit, InputError
from planner.explain.explain import explain
from planner.launch_files import launch_sh
from planner.machine import machine
from planner.report.names import plan_name, sharding_text

N = 4
BF16 = state_widths("bf16", "adamw")
SPEED = DeviceSpeed(1.0, 1e9, 0.0, 1.0, HostSpeed(link_bytes_per_s=1e9, memory_bytes_per_s=1e9))
GRAPH = transformer_graph(replace(SMALL, num_layers=3))
MACHINE = "dgx-a100-80gb"


def at(stage: int, offload: Offload = "optimizer", secondary: int = N) -> Strategy:
    degrees = {1: (1, 1, 1, N), 2: (1, 1, N, N), 3: (N, secondary, N, N)}
    return Strategy(*degrees[stage], offload=offload)


def step(num_micro_batches: int, world_size: int = N) -> StepShape:
    return StepShape(world_size, 1, num_micro_batches, "bf16", "adamw", "cuda")


@pytest.mark.parametrize(
    ("strategy", "num_micro_batches", "width"),
    [
        (at(1), 1, 4 + 2),  # gradients down as fp32, parameters up in bf16
        (at(1), 3, 4 + 2),  # they accumulate on the device
        (at(2), 1, 4 + 2),
        (at(2), 3, 4 + 2 + 2 * 3 + 2 * 2),  # the sum goes down three times and comes up twice
        (at(3), 1, 4 + 2 + 2 + 2),
        (at(3), 3, 4 + 2 + 2 * 3 + 2 * 3),
        (at(3, "all"), 3, 4 + 2 * 3 + 2 * 3),  # parameters stay below
    ],
    ids=str,
)
def test_what_crosses_the_link_follows_the_stage(strategy: Strategy, num_micro_batches: int, width: int) -> None:
    assert moved_width(strategy, step(num_micro_batches)) == width


def test_parameters_on_the_host_come_up_for_each_gather() -> None:
    assert gathered_width(at(3), step(3)) == 0
    assert gathered_width(at(3, "all"), step(3)) == 2 * 3 * 2
    assert gathered_width(at(3, "all", 1), step(3)) == 2 * 3


def test_a_host_scales_and_reads_gradients_updates_states_and_makes_the_copy_to_send() -> None:
    assert host_width(BF16) == 8 + 4 + 2 * 12 + 4 + 2


def test_the_update_takes_its_bytes_over_the_link_and_the_hosts_memory() -> None:
    """1,001 parameters over 4 ranks are 251 each: 6 bytes of each move, 42 are read and written, at 1 GB/s."""
    assert class_update_ns(one_block(1001), 0, at(1), step(1), SPEED) == 251 * 6 + 251 * 42
    slow_link = replace(SPEED, host=HostSpeed(0.5e9, 1e9))
    assert class_update_ns(one_block(1001), 0, at(1), step(1), slow_link) == 2 * 251 * 6 + 251 * 42


def test_offload_to_a_host_that_is_not_known_has_no_time() -> None:
    with pytest.raises(ValueError, match="host"):
        class_update_ns(one_block(1001), 0, at(1), step(1), replace(SPEED, host=None))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_no_optimizer_state_stays_on_the_device_and_gradients_are_not_kept(stage: int) -> None:
    workload = GRAPH.workload
    assignment = (at(stage),) * workload.num_classes
    held = DEEPSPEED.memory(workload, assignment, step(2))
    assert held.at_rest.optimizer_states == 0
    assert held.at_rest.gradients == 0
    assert held.host_bytes > 14 * workload.num_params // N


def test_on_a_cpu_the_hosts_part_is_the_devices() -> None:
    workload = GRAPH.workload
    assignment = (at(2),) * workload.num_classes
    on_cpu = DEEPSPEED.memory(workload, assignment, replace(step(1), device="cpu"))
    assert on_cpu.host_bytes == 0
    assert on_cpu.at_rest.optimizer_states >= 12 * (workload.num_params // N)


def test_pinned_tensors_are_rounded_up_to_powers_of_two() -> None:
    """Stage 2 of 1,000 parameters on 4 ranks: 250 each, in fp32 with a gradient, as bf16; two moments; the longest."""
    workload = one_block(1000)
    pinned = 1024 + 1024 + 512 + 2048
    assert host_bytes(workload, (at(2),), step(1)) == pinned + 8 * 250


def test_a_single_rank_offloads_at_stages_2_and_3() -> None:
    workload = one_block(1000)
    for offload, stage in (("none", 0), ("optimizer", 2), ("all", 3)):
        assignment = (Strategy(1, 1, 1, 1, offload=offload),)  # type: ignore[arg-type]
        assert DEEPSPEED.refusal(workload, assignment, step(1, 1)) is None
        config = ds_config(workload, assignment, step(1, 1))
        assert config["zero_optimization"]["stage"] == stage
        assert ("offload_optimizer" in config["zero_optimization"]) == (offload != "none")
        assert ("offload_param" in config["zero_optimization"]) == (offload == "all")


def test_offload_is_chosen_where_nothing_else_fits_and_says_where_states_lie() -> None:
    job = Job(global_batch_size=64, engine="deepspeed")
    resident = job.model_copy(update={"offload": "none"})
    profile = load(MACHINE, 1)
    assert plan(GRAPH, profile, job).strategies[0].offload == "none"
    least = pareto(GRAPH, profile, resident)[-1].peak_bytes
    tight = {"memory_budget_bytes": least - 1}
    with pytest.raises(DoesNotFit):
        plan(GRAPH, profile, resident.model_copy(update=tight))
    answer = plan(GRAPH, profile, job.model_copy(update=tight))
    assert answer.strategies[0].offload != "none"
    assert "offload" in answer.alternatives[0].name
    assert any("lie in host memory" in text for text in answer.warnings)
    assert answer.ds_config["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert "$(nproc) / 8" in launch_sh(answer)


def test_a_front_with_offload_goes_on_where_the_one_without_ends() -> None:
    job, profile = Job(global_batch_size=64, engine="deepspeed"), load(MACHINE, 1)
    with_offload = pareto(GRAPH, profile, job)
    without = pareto(GRAPH, profile, job.model_copy(update={"offload": "none"}))
    assert with_offload[0] == without[0]
    assert with_offload[-1].peak_bytes < without[-1].peak_bytes
    assert any(point.strategies[0].offload != "none" for point in with_offload)


def test_offload_that_is_asked_for_is_planned_and_estimated_although_slower() -> None:
    job, profile = Job(global_batch_size=64, engine="deepspeed", offload="optimizer"), load(MACHINE, 1)
    answer = plan(GRAPH, profile, job)
    free = plan(GRAPH, profile, job.model_copy(update={"offload": "none"}))
    assert {strategy.offload for strategy in answer.strategies} == {"optimizer"}
    assert answer.predicted.step_s > free.predicted.step_s
    assert {each.name for each in answer.alternatives} == {f"ZeRO-{stage} with offload" for stage in (1, 2, 3)}
    assert plan_name(answer.strategies, answer.hardware) == answer.alternatives[0].name
    assert sharding_text(answer.strategies[0], 8).endswith("; optimizer states in host memory")
    assert answer.predicted.memory.components.optimizer_states == 0
    fixed = estimate(GRAPH, profile, job, (1, 8, 8))
    assert fixed.strategies[0].offload == "optimizer"
    assert fixed.predicted.memory.host_bytes > 0


def test_a_host_that_is_too_small_or_not_known_is_an_error_that_says_so() -> None:
    job, profile = Job(global_batch_size=64, engine="deepspeed", offload="optimizer"), load(MACHINE, 1)
    small = profile.model_copy(update={"host": profile.known_host.model_copy(update={"memory_bytes": 2**20})})
    with pytest.raises(InputError, match=r"of host memory on each node at least.*has 1\.00 MiB"):
        plan(GRAPH, small, job)
    first, second = sweep(GRAPH, small, job, [8, 16])
    assert isinstance(first, Infeasible)
    assert "of host memory on each node at least" in str(first.reason)
    assert isinstance(second, Infeasible)
    unknown = profile.model_copy(update={"host": None})
    with pytest.raises(InputError, match="says nothing of it"):
        plan(GRAPH, unknown, job)
    assert plan(GRAPH, unknown, job.model_copy(update={"offload": "auto"})).strategies[0].offload == "none"


def test_explain_has_the_update_on_the_host_with_its_numbers() -> None:
    profile, job = load(MACHINE, 1), Job(global_batch_size=64, engine="deepspeed", offload="optimizer")
    answer = plan(GRAPH, profile, job)
    seen = machine(profile, "bf16")
    *_, host = explain(answer, GRAPH, seen).sections
    assert host.title.startswith("Update of states in host memory")
    assert answer.predicted.compute is not None
    # By blocks, each rounded up: a few ns more than all at once.
    assert sum(line.value for line in host.lines) == pytest.approx(answer.predicted.compute.update_s, abs=1e-6)
    exact = plan(GRAPH, profile, job.model_copy(update={"offload": "none"}))
    assert not any("host memory" in section.title for section in explain(exact, GRAPH, seen).sections)


def test_a_given_config_that_its_nodes_hosts_cannot_hold_is_estimated_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2, "cpu_offload": True}, "bf16": {"enabled": True}}))
    profile, job = load(MACHINE, 1), Job(global_batch_size=64)
    answer = estimate(GRAPH, profile, job, ds_config=path)
    assert answer.strategies[0].offload == "optimizer"
    assert any("lie in host memory" in text for text in answer.warnings)
    small = profile.model_copy(update={"host": profile.known_host.model_copy(update={"memory_bytes": 2**20})})
    assert any("do not fit in host memory" in text for text in estimate(GRAPH, small, job, ds_config=path).warnings)
