"""Verdicts: how much slower the others are, what most of it is, and what is no loss at all."""

from __future__ import annotations

import io

from rich.console import Console
from sample_plan import GIB, PLAN, alternative, strategy
from transformer_graph import SMALL, transformer_graph

from costmodels.strategy import StepShape, Strategy
from planner.choose.alternatives import alternatives
from planner.choose.candidate import Candidate
from planner.plan import ComputedTime, ExposedTime
from planner.report.alternatives import alternatives_table

WORKLOAD = transformer_graph(SMALL).workload


def other(engine="deepspeed", peak_bytes=None, **predicted):
    memory = PLAN.predicted.memory
    if peak_bytes is not None:
        memory = memory.model_copy(update={"peak_bytes": peak_bytes})
    assignment = (Strategy(1, 1, 1, 32),) * WORKLOAD.num_classes
    return Candidate(
        "X",
        engine,
        WORKLOAD,
        assignment,
        StepShape(32, 4, 2),
        PLAN.predicted.model_copy(update={"memory": memory, **predicted}),
    )


def verdict(candidate):
    return alternatives(other(), (candidate,))[1].verdict


def test_the_net_difference_is_told_before_the_part_that_is_most_of_it():
    exposed = ExposedTime(forward_s=0.0, backward_s=0.0, boundary_s=0.0, update_s=0.0595, control_s=0.0005)
    assert verdict(other(step_s=0.21, exposed=exposed)) == "5.0% slower (+10.0 ms), mainly parameters after the update"


def test_what_is_as_fast_lost_by_its_peak():
    assert verdict(other(peak_bytes=30 * GIB)) == "as fast, with a higher peak (30.00 against 26.00 GiB)"
    assert verdict(other()) == "as fast, with the same peak"


def test_what_another_engine_runs_is_told_by_its_schedule():
    exposed = PLAN.predicted.exposed.model_copy(update={"boundary_s": 0.08})
    assert verdict(other("fsdp", step_s=0.25, exposed=exposed)) == (
        "by FSDP2's schedule 25.0% slower (+50.0 ms), mainly gradients at the boundary"
    )

    assert alternatives(other("fsdp"), (other(step_s=0.25),))[1].verdict.startswith(
        "by DeepSpeed's schedule 25.0% slower"
    )


def test_what_does_not_fit_is_told_in_one_unit():
    assert verdict(other(peak_bytes=2048 * GIB)) == (
        "needs 2,048.00 GiB (backward of blocks.1), has 78.00 GiB; most are activations, 20.00 GiB"
    )


def test_recomputation_is_a_cause_of_its_own():
    computed = ComputedTime(forward_s=0.05, backward_s=0.1, recomputation_s=0.0, update_s=0.0)
    mine, its = (
        other(compute=computed),
        other(step_s=0.25, compute=computed.model_copy(update={"recomputation_s": 0.05})),
    )
    assert alternatives(mine, (its,))[1].verdict == "25.0% slower (+50.0 ms), mainly recomputation"


def test_what_differs_by_class_of_blocks_is_listed_with_its_counts():
    by_class = alternative("best of fsdp", (8, 8, 32), 0.19, 23, "by FSDP2's schedule 5.0% faster", engine="fsdp")
    several = (strategy(8, 8, 32, blocks=("a", "b")), strategy(1, 8, 32, blocks=("c",), recompute="full"))
    plan = PLAN.model_copy(update={"alternatives": (by_class.model_copy(update={"strategies": several}),)})
    stream = io.StringIO()
    Console(file=stream, width=80).print(alternatives_table(plan, every=True))
    assert "by class, (p, g, o): 2 blocks (8, 8, 32); 1 block (1, 8, 32 recomputed)" in stream.getvalue()
