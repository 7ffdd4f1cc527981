"""Laws of what may be chosen beside degrees: more choices never hurt, and nothing lossy comes unasked."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from test_memory_laws import workloads
from transformer_graph import SMALL, transformer_graph

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.memory import step_memory
from costmodels.strategy import Precision, StepShape, Strategy
from costmodels.workload import Workload
from hw_profiles.load import load
from planner import Job
from planner.choose.setting import setting
from planner.choose.space import space
from planner.model_graph import ModelGraph
from planner.solve import Solution, solve

GRAPHS: dict[Precision, ModelGraph] = {
    "bf16": transformer_graph(replace(SMALL, num_layers=2)),
    "fp16": transformer_graph(replace(SMALL, num_layers=2), precision="fp16"),
}
MACHINES = {"bf16": "p4d-a100-40gb", "fp16": "dgx2-v100-32gb"}


def answered(job: Job, num_nodes: int, node_bytes_per_s: float) -> Solution | None:
    profile = load(MACHINES[job.precision], num_nodes)
    network = profile.levels[-1].model_copy(update={"unit_bytes_per_s": node_bytes_per_s})
    profile = profile.model_copy(update={"levels": (*profile.levels[:-1], network)})
    asked = setting(GRAPHS[job.precision], profile, job)
    return solve(space(asked))


@settings(max_examples=40, deadline=None)
@given(
    precision=st.sampled_from(["bf16", "fp16"]),
    budget_mib=st.integers(12, 400),
    micro_batch_size=st.sampled_from([1, 2, 4]),
    node_bytes_per_s=st.sampled_from([1e8, 1e9, 5e10]),
)
def test_more_that_is_allowed_is_never_slower_and_nothing_lossy_comes_unasked(
    precision: Precision, budget_mib: int, micro_batch_size: int, node_bytes_per_s: float
) -> None:
    exact = Job(
        global_batch_size=128,
        micro_batch_size=micro_batch_size,
        precision=precision,
        engine="deepspeed",
        offload="none",
        memory_budget_bytes=budget_mib * 2**20,
    )
    jobs = [exact, exact.model_copy(update={"offload": "auto"})]
    jobs.append(jobs[-1].model_copy(update={"allow_lossy": True}))
    answers = [answered(job, 2, node_bytes_per_s) for job in jobs]
    for answer in answers[:2]:
        if answer is not None:
            assert not answer.option.strategy.quantized_weights
            assert not answer.option.strategy.quantized_gradients
    for narrow, wide in pairwise(answers):
        if narrow is not None:
            assert wide is not None
            assert wide.objective <= narrow.objective


@settings(max_examples=60, deadline=None)
@given(workload=workloads(), stage=st.integers(1, 3), num_micro_batches=st.integers(1, 3), world_size=st.just(4))
def test_offload_takes_states_off_the_device_and_adds_but_the_buffer_that_they_leave_by(
    workload: Workload, stage: int, num_micro_batches: int, world_size: int
) -> None:
    """Stages 1 and 2 have a buffer of the longest parameter, and take norms of the pieces that leave."""
    n = world_size
    degrees = {1: (1, 1, 1, n), 2: (1, 1, n, n), 3: (n, n, n, n)}[stage]
    shape = StepShape(n, 2, num_micro_batches, "bf16", "adamw", "cuda")
    resident, offloaded = (
        (replace(Strategy(*degrees), offload=offload),) * workload.num_classes for offload in ("none", "optimizer")
    )
    before, after = (
        step_memory(workload, DEEPSPEED.memory(workload, assignment, shape), assignment, shape)
        for assignment in (resident, offloaded)
    )
    longest = max(each.num_elements for each in workload.parameters if each.trainable)
    leaving_bytes = (2 * longest if stage < 3 else 0) + 8 * longest
    assert after.components.optimizer_states == 0
    assert after.at_rest_bytes <= before.at_rest_bytes + (2 * longest if stage < 3 else 0)
    assert after.peak_bytes <= before.peak_bytes + leaving_bytes
