"""Verdicts: how much slower the others are, what most of it is, and what is no loss at all."""

from __future__ import annotations

from sample_plan import GIB, PLAN
from transformer_graph import SMALL, transformer_graph

from costmodels.strategy import StepShape, Strategy
from planner.choose.alternatives import alternatives
from planner.choose.candidate import Candidate
from planner.plan import ExposedTime

WORKLOAD = transformer_graph(SMALL).workload


def other(engine="deepspeed", peak_bytes=None, **predicted):
    memory = PLAN.predicted.memory
    if peak_bytes is not None:
        memory = memory.model_copy(update={"peak_bytes": peak_bytes})
    assignment = (Strategy(1, 1, 1, 32),) * WORKLOAD.num_classes
    return Candidate(
        "X", engine, WORKLOAD, assignment, StepShape(32, 4, 2), PLAN.predicted.model_copy(update={"memory": memory, **predicted})
    )


def verdict(candidate):
    return alternatives(other(), (candidate,))[1].verdict


def test_the_net_difference_is_told_before_the_part_that_is_most_of_it():
    exposed = ExposedTime(forward_s=0.0, backward_s=0.0, boundary_s=0.0, update_s=0.0595, control_s=0.0005)
    assert verdict(other(step_s=0.21, exposed=exposed)) == "5.0% slower (+10.0 ms), mainly parameters after the update"


def test_what_is_as_fast_lost_by_its_peak():
    assert verdict(other(peak_bytes=30 * GIB)) == "as fast, with a higher peak (30.00 against 26.00 GiB)"
    assert verdict(other()) == "as fast, with the same peak"


def test_what_no_engine_runs_is_told_so_first():
    assert verdict(other("fsdp", step_s=0.25)).startswith("cannot be run by this version; by the ideal schedule 25.0%")


def test_what_does_not_fit_is_told_in_one_unit():
    assert verdict(other(peak_bytes=2048 * GIB)) == "needs 2,048.00 GiB, has 78.00 GiB"
