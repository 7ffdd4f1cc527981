"""Both engines are searched by default: DeepSpeed where it costs little, and the other's choice is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformer_graph import SMALL, transformer_graph

from hw_profiles.load import load
from planner import Job, Plan, plan
from planner.choose.search_both import MARGIN
from planner.errors import DoesNotFit

TINY = transformer_graph(replace(SMALL, num_layers=3))


def played_s(chosen: Plan) -> float:
    assert chosen.predicted.simulated_step_s is not None
    return chosen.predicted.simulated_step_s


@pytest.mark.parametrize(
    ("num_nodes", "ranks_per_node", "taken"), [(1, 1, "deepspeed"), (1, 8, "fsdp"), (4, 8, "fsdp")], ids=str
)
def test_deepspeed_is_taken_where_it_is_within_the_margin(num_nodes: int, ranks_per_node: int, taken: str) -> None:
    profile = load("dgx-a100-80gb", num_nodes, ranks_per_node)
    chosen, theirs, ours = (
        plan(TINY, profile, Job.model_validate({"global_batch_size": 256, "engine": engine}))
        for engine in ("auto", "deepspeed", "fsdp")
    )
    is_near = played_s(theirs) <= (1 + MARGIN) * played_s(ours)
    expected, other = (theirs, ours) if is_near else (ours, theirs)
    assert expected.engine == taken
    assert (chosen.engine, chosen.strategies, chosen.predicted) == (
        expected.engine,
        expected.strategies,
        expected.predicted,
    )
    assert chosen.ds_config == expected.ds_config
    assert chosen.solver.status == "OPTIMAL"
    (told,) = [each for each in chosen.alternatives if each.name.startswith(f"best of {other.engine}: ")]
    assert told.step_s == pytest.approx(other.predicted.step_s, rel=0.02)


def test_where_one_engine_has_nothing_that_fits_the_other_is_suggested_if_it_has() -> None:
    profile = load("dgx-a100-80gb", 1)
    peaks = {}
    for engine in ("deepspeed", "fsdp"):
        job = Job.model_validate({"global_batch_size": 8, "engine": engine, "memory_budget_bytes": 10**6})
        with pytest.raises(DoesNotFit) as caught:
            plan(TINY, profile, job)
        assert not any(text.startswith("--engine") for text in caught.value.infeasible.suggestions)
        peaks[engine] = caught.value.infeasible.needed_bytes
    least, most = sorted(peaks, key=lambda engine: peaks[engine])
    between = (peaks[least] + peaks[most]) // 2
    job = Job.model_validate({"global_batch_size": 8, "engine": most, "memory_budget_bytes": between})
    with pytest.raises(DoesNotFit) as caught:
        plan(TINY, profile, job)
    assert caught.value.infeasible.suggestions[0].startswith(f"--engine {least}: ")
    assert plan(TINY, profile, job.model_copy(update={"engine": "auto"})).engine == least
    with pytest.raises(DoesNotFit) as caught:
        plan(TINY, profile, job.model_copy(update={"engine": "auto", "memory_budget_bytes": peaks[least] - 1}))
    assert caught.value.infeasible.needed_bytes == peaks[least]


def test_offload_that_is_asked_for_is_deepspeeds() -> None:
    profile = load("dgx-a100-80gb", 1)
    assert plan(TINY, profile, Job(global_batch_size=8, offload="optimizer")).engine == "deepspeed"
