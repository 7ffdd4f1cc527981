"""Other sizes of messages than by rule are taken where the step, played through, is shorter by enough."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformer_graph import SMALL, transformer_graph

from costmodels.deepspeed.engine import DeepSpeed
from costmodels.deepspeed.knobs import choose_knobs
from hw_profiles.load import load
from hw_profiles.schema import HardwareProfile
from planner import Job, estimate, plan
from planner.choose.message_sizes import WORTH_PARTS
from planner.choose.timeline_of import timeline_of
from planner.explain.retrace import retrace
from planner.machine import machine
from planner.read.read_ds_config import understand

GRAPH = transformer_graph(replace(SMALL, num_layers=8))


def profile_with(alpha_s: float, rate: float = 1.0) -> HardwareProfile:
    """Nodes whose links start up in so many seconds, at so many times the shipped speed."""
    profile = load("dgx-a100-80gb", 2)
    levels = tuple(
        level.model_copy(update={"alpha_s": alpha_s, "unit_bytes_per_s": level.unit_bytes_per_s * rate})
        for level in profile.levels
    )
    return profile.model_copy(update={"levels": levels})


JOB = Job(global_batch_size=512, micro_batch_size=16, engine="deepspeed", recompute="none", offload="none")
LITTLE = {"global_batch_size": 64, "micro_batch_size": 4, "memory_budget_bytes": 300 << 20}
"""Little to compute, and less memory than whole states need."""


@pytest.mark.parametrize(
    ("alpha_s", "rate", "job", "is_larger"),
    [(2e-3, 1.0, JOB.model_copy(update=LITTLE), True), (1e-6, 0.3, JOB, False)],
    ids=["slow starts", "slow links"],
)
def test_slow_starts_ask_for_larger_messages_and_slow_links_for_smaller(
    alpha_s: float, rate: float, job: Job, is_larger: bool
) -> None:
    profile = profile_with(alpha_s, rate)
    chosen = plan(GRAPH, profile, job)
    knobs = understand(chosen.ds_config).knobs
    told = retrace(chosen, GRAPH, machine(profile, "bf16", GRAPH))
    assert told is not None, "the plan's figures are those of its configuration"
    rule = choose_knobs(told.workload, told.assignment, told.shape)
    assert (knobs.reduce_bucket_size > rule.reduce_bucket_size) == is_larger
    assert knobs.reduce_bucket_size != rule.reduce_bucket_size
    assert told.engine == DeepSpeed(knobs)
    (text,) = [each for each in chosen.warnings if "reduce_bucket_size" in each]
    assert f"{knobs.reduce_bucket_size:,} in place of {rule.reduce_bucket_size:,}" in text
    played_s = timeline_of(chosen, GRAPH, machine(profile, "bf16", GRAPH)).step_s
    assert chosen.predicted.simulated_step_s == played_s
    first = chosen.strategies[0]
    degrees = (first.param_degree, first.grad_degree, first.optim_degree)
    by_rule = estimate(GRAPH, profile, job, degrees, first.secondary_degree)
    assert by_rule.predicted.simulated_step_s is not None
    assert played_s * 1000 < by_rule.predicted.simulated_step_s * WORTH_PARTS


def test_where_compute_is_all_of_the_step_the_rule_stays() -> None:
    chosen = plan(GRAPH, load("dgx-a100-80gb", 1, 1), JOB)
    assert not any("bucket_size" in text for text in chosen.warnings)
