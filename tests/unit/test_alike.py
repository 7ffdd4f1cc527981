"""One strategy for all blocks is taken where it is as fast as strategies by class of blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transformer_graph import SMALL, transformer_graph

from hw_profiles.load import load
from hw_profiles.schema import HardwareProfile
from planner import Job, estimate, plan
from planner.model_graph import ModelGraph

ON_CPU = transformer_graph(replace(SMALL, num_layers=3), precision="fp32").model_copy(update={"device": "cpu"})
WIDE_VOCABULARY = replace(SMALL, num_layers=8, hidden=256, ffn=1024, vocab=8192, kv=256, sequence_length=64)
OF_EMBEDDINGS = transformer_graph(WIDE_VOCABULARY, precision="fp32").model_copy(update={"device": "cpu"})
"""Its first gather and last reduction are its longest: played through, a step is faster than its bound."""
ON_CUDA = transformer_graph(replace(SMALL, num_layers=3))
CASES = [
    *(("local-cpu", *ranks, batch) for ranks in ((1, 4), (2, 2), (2, 4)) for batch in (8, 32)),
    ("dgx-a100-80gb", 2, 8, 256),
    ("dgx-a100-80gb", 8, 8, 512),
    ("p4d-a100-40gb", 4, 8, 256),
    ("frontier-mi250x", 2, 8, 512),
    ("l4-pcie-8", 2, 8, 256),
]
Case = tuple[str, int, int, int]


def asked(case: Case) -> tuple[ModelGraph, HardwareProfile, Job]:
    graph = ON_CPU if case[0] == "local-cpu" else ON_CUDA
    profile = load(*case[:3])
    return graph, profile, Job(global_batch_size=case[3], precision=graph.precision, engine="fsdp")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_none_of_its_strategies_for_all_blocks_would_be_as_fast_as_a_mixed_plan(case: Case) -> None:
    chosen = plan(*asked(case))
    assert chosen.predicted.simulated_step_s is not None
    for each in chosen.strategies:
        degrees = (each.param_degree, each.grad_degree, each.optim_degree)
        for_all = estimate(*asked(case), degrees, each.secondary_degree)
        assert for_all.predicted.simulated_step_s is not None
        memory = for_all.predicted.memory
        if len(chosen.strategies) > 1 and memory.peak_bytes <= memory.budget_bytes:
            assert for_all.predicted.simulated_step_s > 1.0009 * chosen.predicted.simulated_step_s
        if chosen.solver.decided_by == "bound":
            assert chosen.predicted.step_s == chosen.solver.objective_s
        if chosen.solver.decided_by == "alike":
            assert len(chosen.strategies) == 1
            assert chosen.predicted.step_s <= 1.0011 * chosen.solver.objective_s


def test_strategies_are_made_alike_somewhere_and_played_through_elsewhere() -> None:
    decided = {case: plan(*asked(case)).solver.decided_by for case in CASES}
    assert "alike" in decided.values()
    assert "simulation" in decided.values()


def test_where_a_step_is_faster_than_its_bound_strategies_are_made_alike_too() -> None:
    profile = load("local-cpu", 2, 2)
    slow = tuple(
        level.model_copy(update={"unit_bytes_per_s": rate})
        for level, rate in zip(profile.levels, (3.7e8, 3.7e7), strict=True)
    )
    job = Job(global_batch_size=4, precision="fp32", engine="fsdp", recompute="none")
    device = profile.device.model_copy(update={"overlap": 0.6})
    of_embeddings = (OF_EMBEDDINGS, profile.model_copy(update={"levels": slow, "device": device}), job)
    chosen = plan(*of_embeddings)
    played_s = chosen.predicted.simulated_step_s
    assert played_s is not None
    assert played_s < chosen.solver.bound_s
    assert (len(chosen.strategies), chosen.solver.decided_by) == (1, "alike")
