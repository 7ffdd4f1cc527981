"""Offload as people reported it: what a single estimate of model states leaves out.

Of the rest of the kind, other tests have:

| what | where |
|---|---|
| 70B on 24 cards: refused without offload, with it the host memory of a node | test_pipeline: test_70b_on_24_gpus_fits_with_offload_alone_and_says_the_host_memory |
| hpZ never with offload | test_deepspeed_traffic: REFUSED |
| `cpu_offload: true` in a config | test_ds_config: test_what_goes_to_the_host_is_read_by_its_new_and_old_names |
"""  # noqa: E501

from __future__ import annotations

import pytest
from field_models import FIELD, GIB, MIB, graph_of

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.memory import step_memory
from costmodels.strategy import StepShape, Strategy
from hw_profiles.load import load
from planner import Job, plan

RANKS = int(FIELD["built_whole"]["ranks"])


def test_states_and_parameters_on_the_host_leave_little_at_rest_but_not_in_the_step() -> None:
    """An estimator said 0.49 GB; 14,678 MiB were seen after init, where the whole model was built on the device."""
    graph = graph_of("6.8B", "fp16")
    workload, shape = graph.workload, StepShape(RANKS, 1, 1, "fp16", "adamw", "cuda")
    assignment = (Strategy(RANKS, RANKS, RANKS, RANKS, recompute="full", offload="all"),) * workload.num_classes
    assert DEEPSPEED.refusal(workload, assignment, shape) is None
    held = DEEPSPEED.memory(workload, assignment, shape)
    memory = step_memory(workload, held, assignment, shape)
    assert memory.at_rest_bytes < 0.5 * GIB
    assert memory.peak_bytes > 3 * memory.at_rest_bytes
    whole_bytes = 2 * workload.num_params
    assert whole_bytes / MIB == pytest.approx(float(FIELD["built_whole"]["whole_MiB"]), rel=1e-3)
    assert memory.init_peak_bytes < whole_bytes / 4
    # fp32 parameters, their gradients, two moments, and parameters and gradients as the model has them.
    assert 20 * workload.num_params / RANKS <= held.host_bytes < 32 * workload.num_params / RANKS


def test_a_single_card_trains_by_offload_what_it_cannot_hold() -> None:
    """6.8B parameters have 16 bytes of states each: 101 GiB, on a card of 80."""
    graph = graph_of("6.8B", "bf16")
    machine, job = load("dgx-a100-80gb", 1, 1), Job(global_batch_size=8, engine="deepspeed")
    answer = plan(graph, machine, job)
    assert answer.strategies[0].offload != "none"
    memory = answer.predicted.memory
    assert memory.peak_bytes <= memory.budget_bytes < 16 * graph.workload.num_params
    assert memory.host_bytes >= 16 * graph.workload.num_params
