"""Why a plan won over another strategy: what decided, in numbers."""

from __future__ import annotations

from sample_plan import GIB, PLAN, strategy

from planner.explain.compare import compare
from planner.plan import ExposedTime


def other(**predicted):
    return PLAN.model_copy(
        update={"strategies": (strategy(32, 32, 32),), "predicted": PLAN.predicted.model_copy(update=predicted)}
    )


def needing(peak_bytes):
    memory = PLAN.predicted.memory
    components = memory.components.model_copy(update={"activations": peak_bytes - 6 * GIB})
    return memory.model_copy(update={"peak_bytes": peak_bytes, "components": components})


def test_what_does_not_fit_lost_by_memory_however_fast_it_is():
    comparison = compare(PLAN, other(step_s=0.001, memory=needing(90 * GIB)))
    assert comparison.reason == "memory"
    for figure in ("90.00 GiB", "12.00 GiB above", "78.00 GiB", "84.00 GiB", "activations"):
        assert figure in comparison.verdict


def test_what_is_slower_lost_by_its_largest_cause():
    exposed = ExposedTime(forward_s=0.01, backward_s=0.09, boundary_s=0.03, update_s=0.02, control_s=0.0)
    comparison = compare(PLAN, other(step_s=0.3, exposed_communication_s=0.15, exposed=exposed))
    assert comparison.reason == "time"
    assert "50.0% slower" in comparison.verdict
    assert "100.0 ms more in all; most is added by exposed in backward, 90.00 ms" in comparison.verdict


def test_what_is_as_fast_is_no_slower_and_no_faster():
    for step_s in (0.2, 0.19999, 0.20001):
        comparison = compare(PLAN, other(step_s=step_s, memory=needing(30 * GIB)))
        assert comparison.reason == "tie"
        assert "its peak is 30.00 GiB, and that of this plan 26.00 GiB" in comparison.verdict


def test_peaks_of_two_moments_are_named():
    memory = PLAN.predicted.memory.model_copy(update={"peak_phase": "optimizer step"})
    comparison = compare(PLAN, other(step_s=0.3, memory=memory))
    assert (comparison.chosen_peak_phase, comparison.other_peak_phase) == ("backward of blocks.1", "optimizer step")


def test_what_another_engine_would_run_lost_by_the_engine():
    comparison = compare(PLAN, other(step_s=0.15).model_copy(update={"engine": "fsdp"}))
    assert comparison.reason == "engine"
    assert "25.0% faster" in comparison.verdict


def test_the_plan_itself_did_not_lose():
    assert compare(PLAN, PLAN).reason == "same"


def test_a_faster_strategy_is_not_explained_away():
    comparison = compare(PLAN, other(step_s=0.15))
    assert comparison.reason == "faster"
    assert "25.0% faster" in comparison.verdict


def test_differences_sum_to_the_totals_of_both():
    comparison = compare(PLAN, other())
    for rows, total in ((comparison.time, "step"), (comparison.memory, "peak")):
        *parts, whole = rows
        assert whole.name == total
        assert abs(sum(part.chosen for part in parts) - whole.chosen) < 1e-9
        assert abs(sum(part.other for part in parts) - whole.other) < 1e-9
