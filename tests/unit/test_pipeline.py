"""What plan, estimate and sweep promise, on models written by hand and shipped machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformer_graph import LLAMA_70B, QWEN_72B, SMALL, transformer_graph

from hw_profiles.load import load
from planner import Infeasible, Job, Plan, estimate, plan, sweep
from planner.errors import DoesNotFit, InputError

GIB = 2**30
TINY = transformer_graph(replace(SMALL, num_layers=3))
FOUR_NODES = load("dgx-a100-80gb", 4)
JOB = Job(global_batch_size=256, engine="deepspeed")


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(TINY, FOUR_NODES, JOB)


def without_clock(answer: Plan) -> str:
    return answer.model_copy(update={"solver": answer.solver.model_copy(update={"wall_s": 0.0})}).model_dump_json()


def test_a_plan_is_proved_and_fits(planned: Plan) -> None:
    memory = planned.predicted.memory
    assert planned.solver.status == "OPTIMAL"
    assert planned.solver.gap == 0
    assert planned.solver.objective_s <= planned.predicted.step_s
    assert (planned.solver.objective_s == planned.predicted.step_s) or planned.solver.decided_by == "simulation"
    assert 0 < memory.at_rest_bytes <= memory.peak_bytes <= memory.budget_bytes
    components = sum(amount for _, amount in memory.components)
    assert components == memory.peak_bytes
    job = planned.job
    assert job.micro_batch_size * job.num_micro_batches * planned.hardware.world_size == 256


def test_two_runs_give_the_same_bytes(planned: Plan) -> None:
    assert without_clock(plan(TINY, FOUR_NODES, JOB)) == without_clock(planned)


def test_exposed_time_and_traffic_add_up_to_the_step(planned: Plan) -> None:
    predicted = planned.predicted
    assert predicted.exposed is not None
    exposed_s = sum(seconds for _, seconds in predicted.exposed)
    assert predicted.step_s == pytest.approx(predicted.compute_s + predicted.exposed_communication_s, abs=1e-9)
    assert exposed_s == pytest.approx(predicted.exposed_communication_s, abs=1e-9)
    assert sum(row.exposed_s for row in predicted.traffic) == pytest.approx(exposed_s, abs=1e-9)
    tokens = 256 * SMALL.sequence_length
    assert predicted.tokens_per_s == pytest.approx(tokens / predicted.step_s)


def test_no_alternative_of_the_plans_engine_is_faster(planned: Plan) -> None:
    chosen, *others = planned.alternatives
    assert chosen.verdict == "chosen"
    assert chosen.step_s == planned.predicted.step_s
    assert {other.name for other in others} >= {"DDP", "ZeRO-1"} - {chosen.name}
    for other in others:
        fits = other.peak_bytes <= planned.predicted.memory.budget_bytes
        if other.engine == "deepspeed" and fits and other.step_s < 0.9995 * chosen.step_s:
            assert planned.solver.decided_by == "simulation"
            assert "slower when played through" in other.verdict
        elif other.engine == "deepspeed" and fits:
            assert ("slower" if other.step_s > 1.0005 * chosen.step_s else "as fast") in other.verdict


def test_an_estimate_of_the_choice_is_the_plan(planned: Plan) -> None:
    first = planned.strategies[0]
    degrees = (first.param_degree, first.grad_degree, first.optim_degree)
    again = estimate(TINY, FOUR_NODES, JOB, degrees, secondary_degree=first.secondary_degree)
    assert again.solver.status == "FIXED"
    assert (again.strategies, again.predicted, again.ds_config) == (
        planned.strategies,
        planned.predicted,
        planned.ds_config,
    )


def test_an_estimate_beyond_deepspeeds_words_is_of_the_fsdp_engine() -> None:
    answer = estimate(TINY, FOUR_NODES, Job(global_batch_size=256), (1, 1, 8))
    assert (answer.engine, answer.native_deepspeed) == ("fsdp", False)
    assert answer.ds_config["shardplan"]["engine"] == "fsdp"
    assert {strategy.optim_degree for strategy in answer.strategies} == {8}


def test_recomputation_is_told_as_the_launchers_work() -> None:
    answers = [estimate(TINY, FOUR_NODES, Job(global_batch_size=256, recompute=r), (1, 1, 1)) for r in ("full", "none")]
    told = [[warning for warning in answer.warnings if "launch.py" in warning] for answer in answers]
    number = len(answers[0].model.recompute_modules)
    assert number > 0
    assert [len(warnings) for warnings in told] == [1, 0]
    assert f"({number} block" in told[0][0]


def test_an_estimate_that_does_not_fit_still_answers() -> None:
    answer = estimate(TINY, FOUR_NODES, Job(global_batch_size=256, memory_budget_bytes=2**20), (1, 1, 1))
    assert answer.predicted.memory.peak_bytes > 2**20
    assert any("does not fit" in warning for warning in answer.warnings)


def test_an_estimate_of_a_plans_own_config_is_the_plan(planned: Plan, tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(planned.ds_config))
    again = estimate(TINY, FOUR_NODES, JOB, ds_config=path)
    assert again.job == planned.job
    assert [s.model_dump() for s in again.strategies] == [s.model_dump() for s in planned.strategies]
    assert again.predicted == planned.predicted
    assert again.ds_config == planned.ds_config


def test_an_estimate_wants_exactly_one_strategy(tmp_path: Path) -> None:
    for degrees, ds_config in ((None, None), ((1, 1, 1), tmp_path / "ds_config.json")):
        with pytest.raises(InputError, match="either degrees"):
            estimate(TINY, FOUR_NODES, JOB, degrees, ds_config=ds_config)


@pytest.mark.parametrize(
    ("degrees", "secondary_degree", "reason"),
    [
        ((3, 5, 7), None, "3 does not divide 32"),
        ((1, 8, 4), None, "grad degree 8 does not divide the optim degree 4"),
        ((8, 8, 8), 3, "secondary degree 3"),
    ],
)
def test_degrees_outside_the_space_are_refused(
    degrees: tuple[int, int, int], secondary_degree: int | None, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        estimate(TINY, FOUR_NODES, JOB, degrees, secondary_degree)


def test_degrees_that_an_engine_lacks_are_refused_by_its_name() -> None:
    with pytest.raises(InputError, match="DeepSpeed has no stage with degrees"):
        estimate(TINY, FOUR_NODES, Job(global_batch_size=256, engine="deepspeed"), (1, 1, 8))


def test_the_fsdp_engine_is_planned_with_a_config_of_its_own() -> None:
    found = plan(TINY, FOUR_NODES, Job(global_batch_size=256, engine="fsdp"))
    assert (found.engine, found.native_deepspeed) == ("fsdp", False)
    assert found.ds_config["gradient_accumulation_steps"] == found.job.num_micro_batches
    assert (found.solver.status, found.solver.gap) == ("OPTIMAL", 0.0)
    assert found.predicted.step_s <= min(other.step_s for other in found.alternatives if other.engine == "fsdp")
    assert sum(other.name.startswith("best of deepspeed: ") for other in found.alternatives) == 1


def test_unknown_hardware_lists_what_there_is() -> None:
    with pytest.raises(InputError, match="dgx-a100-80gb"):
        plan(TINY, "no-such-machine", JOB)


def test_a_precision_that_the_device_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="bf16"):
        plan(TINY, load("dgx2-v100-32gb", 1), Job(global_batch_size=16))


# A cluster lost one of its GPUs: 256 samples are no multiple of 2 x 7.
def test_a_batch_that_does_not_divide_names_the_nearest_ones() -> None:
    with pytest.raises(InputError, match=r"33 = b x M x 32 has no whole M .*use --global-batch-size 32 or 64"):
        plan(TINY, FOUR_NODES, Job(global_batch_size=33))
    with pytest.raises(InputError, match=r"256 = 3 x M x 32.*a micro-batch that divides 256 / 32 = 8: 1, 2, 4, 8"):
        plan(TINY, FOUR_NODES, Job(global_batch_size=256, micro_batch_size=3))


def test_a_batch_smaller_than_the_world_names_the_smallest_legal_one() -> None:
    with pytest.raises(InputError, match=r"1 = b x M x 32 has no whole M .*use --global-batch-size 32$"):
        plan(TINY, FOUR_NODES, Job(global_batch_size=1))


# 72B parameters on one node of 8 x 40 GB: about 18 bytes x parameters / 8 = 152 GiB.
def test_72b_on_one_node_is_refused_with_the_number_of_nodes_that_would_do() -> None:
    graph = transformer_graph(QWEN_72B)
    with pytest.raises(DoesNotFit) as caught:
        plan(graph, load("p4d-a100-40gb", 1), Job(global_batch_size=40))
    found = caught.value.infeasible
    states_bytes = 18 * graph.workload.num_params / 8
    assert found.needed_bytes == pytest.approx(states_bytes, rel=0.10)
    assert found.available_bytes < 40 * GIB
    assert f"needs {found.needed_bytes / GIB:.1f} GiB per rank" in str(caught.value)
    assert f"{found.available_bytes / GIB:.2f} GiB are available" in str(caught.value)
    (nodes,) = (text for text in found.suggestions if text.startswith("--nodes"))
    num_nodes = int(nodes.split(":")[0].removeprefix("--nodes "))
    sizes = [8 * (num_nodes - 1), 8 * num_nodes]
    one_each = [Job(global_batch_size=size, micro_batch_size=1) for size in sizes]
    fewer, enough = (sweep(graph, "p4d-a100-40gb", job, [size])[0] for job, size in zip(one_each, sizes, strict=True))
    assert isinstance(fewer, Infeasible)
    assert isinstance(enough, Plan)


# 70B parameters on 24 x 40 GB: 16 bytes x parameters / 24 = 42.8 GiB of states alone.
def test_70b_on_24_gpus_fits_with_offload_alone_and_says_the_host_memory() -> None:
    graph, machine, job = transformer_graph(LLAMA_70B), load("p4d-a100-40gb", 3), Job(global_batch_size=24)
    with pytest.raises(DoesNotFit) as caught:
        plan(graph, machine, job.model_copy(update={"offload": "none"}))
    found = caught.value.infeasible
    assert found.needed_bytes > 16 * graph.workload.num_params / 24
    (text,) = (each for each in found.suggestions if each.startswith("--offload"))
    assert text.startswith("--offload optimizer: with optimizer states in host memory it fits")
    for offload in ("optimizer", "auto"):
        answer = plan(graph, machine, job.model_copy(update={"offload": offload}))
        assert answer.strategies[0].offload != "none"
        assert 12 * graph.workload.num_params / 24 < answer.predicted.memory.host_bytes
        assert 8 * answer.predicted.memory.host_bytes <= machine.known_host.memory_bytes


def test_a_suggestion_to_recompute_or_shrink_the_micro_batch_is_true() -> None:
    tight = Job(global_batch_size=256, micro_batch_size=8, recompute="none", memory_budget_bytes=50 * 2**20)
    roomy = estimate(TINY, FOUR_NODES, tight, (32, 32, 32)).predicted.memory.peak_bytes
    small = estimate(TINY, FOUR_NODES, Job(global_batch_size=256, micro_batch_size=1), (32, 32, 32))
    assert small.predicted.memory.peak_bytes < roomy
    between = (small.predicted.memory.peak_bytes + roomy) // 2
    with pytest.raises(DoesNotFit) as caught:
        plan(TINY, FOUR_NODES, tight.model_copy(update={"memory_budget_bytes": between}))
    (text,) = (each for each in caught.value.infeasible.suggestions if each.startswith("--micro-batch-size"))
    size = int(text.split(":")[0].split()[1])
    plan(TINY, FOUR_NODES, tight.model_copy(update={"memory_budget_bytes": between, "micro_batch_size": size}))


def test_a_suggested_budget_is_enough_to_the_byte_and_says_amounts_in_their_own_unit() -> None:
    tiny = Job(global_batch_size=32, memory_budget_bytes=70)
    with pytest.raises(DoesNotFit, match=r"needs \d+\.\d+ MiB per rank at least, and 70 B are available") as caught:
        plan(TINY, FOUR_NODES, tiny)
    (budget,) = (text for text in caught.value.infeasible.suggestions if text.startswith("--memory-budget"))
    enough = int(budget.split(":")[0].removeprefix("--memory-budget "))
    plan(TINY, FOUR_NODES, tiny.model_copy(update={"memory_budget_bytes": enough}))
    with pytest.raises(DoesNotFit):
        plan(TINY, FOUR_NODES, tiny.model_copy(update={"memory_budget_bytes": enough - 1}))


def test_a_budget_beyond_the_device_is_refused() -> None:
    with pytest.raises(InputError, match=r"500\.0 GiB is more than .* has: "):
        plan(TINY, FOUR_NODES, Job(global_batch_size=32, memory_budget_bytes=500 * GIB))


def test_a_sweep_answers_for_every_size_as_plan_does(planned: Plan) -> None:
    budget = planned.predicted.memory.peak_bytes
    job = JOB.model_copy(update={"memory_budget_bytes": budget})
    answers = sweep(TINY, FOUR_NODES, job, [4, 8, 32])
    assert [a.world_size if isinstance(a, Infeasible) else a.hardware.world_size for a in answers] == [4, 8, 32]
    last = answers[-1]
    assert isinstance(last, Plan)
    assert last.predicted.step_s == planned.predicted.step_s


def test_a_sweep_refuses_sizes_that_are_no_whole_nodes() -> None:
    with pytest.raises(InputError, match="12 ranks are no whole nodes of 8"):
        sweep(TINY, FOUR_NODES, JOB, [8, 12])


def test_a_sweep_gives_the_reason_for_a_size_that_the_batch_does_not_divide_over() -> None:
    legal, illegal = sweep(TINY, FOUR_NODES, Job(global_batch_size=128), [8, 24])
    assert isinstance(legal, Plan)
    assert isinstance(illegal, Infeasible)
    assert (illegal.world_size, illegal.needed_bytes, illegal.nearest) == (24, 0, None)
    assert illegal.reason is not None
    assert "128 = b x M x 24 has no whole M (remainder 8 of 24); use --global-batch-size 120 or 144" in illegal.reason


def test_a_sweep_of_no_legal_size_is_a_mistake_of_usage() -> None:
    with pytest.raises(InputError, match="x 8 has no whole M"):
        sweep(TINY, FOUR_NODES, Job(global_batch_size=127), [8, 16])


def test_one_rank_is_a_plan() -> None:
    answer = sweep(TINY, FOUR_NODES, Job(global_batch_size=4), [1])[0]
    assert isinstance(answer, Plan)
    assert [s.param_degree for s in answer.strategies] == [1] * len(answer.strategies)
    assert answer.predicted.exposed_communication_s == 0


def test_a_job_that_asks_for_another_precision_than_traced_is_refused() -> None:
    with pytest.raises(InputError, match="traced with precision bf16"):
        plan(TINY, FOUR_NODES, Job(global_batch_size=256, precision="fp32"))
