"""One strategy for all blocks is taken where it is as fast as strategies by class of blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformer_graph import SMALL, transformer_graph

from hw_profiles.load import load
from planner import Job, Plan, estimate, plan

GRAPH = transformer_graph(replace(SMALL, num_layers=3), precision="fp32").model_copy(update={"device": "cpu"})
CASES = [(nodes, ranks, batch) for nodes, ranks in ((1, 4), (2, 2), (2, 4)) for batch in (1, 4)]


def planned(nodes: int, ranks: int, batch: int, **job: object) -> tuple[Plan, Job]:
    asked = Job.model_validate(
        {"global_batch_size": batch * nodes * ranks, "precision": "fp32", "engine": "fsdp", **job}
    )
    return plan(GRAPH, load("local-cpu", nodes, ranks), asked), asked


@pytest.mark.parametrize("case", CASES, ids=str)
def test_none_of_its_strategies_for_all_blocks_would_be_as_fast_as_a_mixed_plan(case: tuple[int, int, int]) -> None:
    chosen, job = planned(*case)
    assert chosen.predicted.simulated_step_s is not None
    for each in chosen.strategies:
        degrees = (each.param_degree, each.grad_degree, each.optim_degree)
        for_all = estimate(GRAPH, load("local-cpu", *case[:2]), job, degrees, each.secondary_degree)
        assert for_all.predicted.simulated_step_s is not None
        if len(chosen.strategies) > 1:
            assert for_all.predicted.simulated_step_s > 1.0009 * chosen.predicted.simulated_step_s
        if chosen.solver.decided_by == "bound":
            assert chosen.predicted.step_s == chosen.solver.objective_s
        if chosen.solver.decided_by == "alike":
            assert len(chosen.strategies) == 1
            assert chosen.predicted.step_s <= 1.0011 * chosen.solver.objective_s


def test_strategies_are_made_alike_somewhere() -> None:
    assert "alike" in {planned(*case)[0].solver.decided_by for case in CASES}
