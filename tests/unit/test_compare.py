"""Why a plan won over another strategy: what decided, in numbers."""

from __future__ import annotations

from sample_plan import GIB, PLAN, strategy

from planner.explain.compare import compare
from planner.explain.explanation import AtMicroBatch
from planner.explain.rival import Rival
from planner.plan import ComputedTime, ExposedTime


def other(**predicted):
    return PLAN.model_copy(
        update={"strategies": (strategy(32, 32, 32),), "predicted": PLAN.predicted.model_copy(update=predicted)}
    )


def compared(plan, chosen=PLAN, **about):
    return compare(chosen, Rival(plan, **about))


def needing(peak_bytes):
    memory = PLAN.predicted.memory
    components = memory.components.model_copy(update={"activations": peak_bytes - 6 * GIB})
    return memory.model_copy(update={"peak_bytes": peak_bytes, "components": components})


def at(micro_batch_size, step_s, peak_gib, *, fits=True):
    return AtMicroBatch(
        micro_batch_size=micro_batch_size,
        num_micro_batches=8 // micro_batch_size,
        num_recomputed=0,
        step_s=step_s,
        peak_bytes=peak_gib * GIB,
        fits=fits,
    )


def of_micro_batch(plan, size):
    job = plan.job.model_copy(update={"micro_batch_size": size, "num_micro_batches": 8 // size})
    return plan.model_copy(update={"job": job})


def test_what_does_not_fit_lost_by_memory_however_fast_it_is():
    comparison = compared(other(step_s=0.001, memory=needing(90 * GIB)))
    assert comparison.reason == "memory"
    for figure in ("90.00 GiB", "12.00 GiB above", "78.00 GiB", "84.00 GiB", "activations", "backward of blocks.1"):
        assert figure in comparison.verdict
    assert not comparison.other.fits


def test_what_is_slower_lost_by_its_largest_cause():
    exposed = ExposedTime(forward_s=0.01, backward_s=0.09, boundary_s=0.03, update_s=0.02, control_s=0.0)
    comparison = compared(other(step_s=0.3, exposed_communication_s=0.15, exposed=exposed))
    assert comparison.reason == "time"
    assert "50.0% slower" in comparison.verdict
    assert "100.0 ms more in all; most is added by exposed in backward, 90.00 ms" in comparison.verdict


def test_compute_is_told_by_its_parts_where_both_plans_have_them():
    computed = ComputedTime(forward_s=0.05, backward_s=0.1, recomputation_s=0.0, update_s=0.0)
    again = computed.model_copy(update={"recomputation_s": 0.05})
    mine = PLAN.model_copy(update={"predicted": PLAN.predicted.model_copy(update={"compute": computed})})
    its = other(step_s=0.25, compute_s=0.2, compute=again)
    comparison = compared(its, mine)
    assert "most is added by recomputation, 50.00 ms" in comparison.verdict
    assert [row.name for row in comparison.time[:3]] == ["forward", "backward", "recomputation"]
    assert next(row.name for row in compared(its).time) == "compute"


def test_what_is_as_fast_is_no_slower_and_no_faster():
    for step_s in (0.2, 0.19999, 0.20001):
        comparison = compared(other(step_s=step_s, memory=needing(30 * GIB)))
        assert comparison.reason == "tie"
        assert "its peak is 30.00 GiB, and that of the plan 26.00 GiB" in comparison.verdict


def test_of_equally_fast_ones_the_text_says_what_broke_the_tie():
    assert "to the nanosecond" in compared(other(memory=needing(30 * GIB))).verdict
    assert compared(other(memory=needing(30 * GIB))).verdict.endswith("that of the lower peak is taken.")
    assert "the first of the space is taken" in compared(other()).verdict
    assert (
        "0.01 ms more" in compared(other(step_s=0.20001)).verdict
        or "10.00 µs" in compared(other(step_s=0.20001)).verdict
    )
    given = PLAN.model_copy(update={"solver": PLAN.solver.model_copy(update={"status": "FIXED"})})
    assert compared(other(), given).verdict.endswith("The plan was given, not chosen.")


def test_peaks_of_two_moments_are_named():
    memory = PLAN.predicted.memory.model_copy(update={"peak_phase": "optimizer step"})
    comparison = compared(other(step_s=0.3, memory=memory))
    assert (comparison.chosen.peak_phase, comparison.other.peak_phase) == ("backward of blocks.1", "optimizer step")


def test_what_another_engine_would_run_lost_by_the_engine_and_the_schedules_part_is_told():
    ideal = PLAN.predicted.model_copy(update={"step_s": 0.18})
    comparison = compared(other(step_s=0.15).model_copy(update={"engine": "fsdp"}), chosen_ideally=ideal)
    assert comparison.reason == "engine"
    assert "25.0% faster" in comparison.verdict
    assert comparison.ideal_step_s == 0.18
    assert any("-20.00 ms are the schedule's and -30.00 ms the degrees'" in note for note in comparison.notes)


def test_the_plan_itself_did_not_lose():
    comparison = compared(PLAN)
    assert comparison.reason == "same"
    assert comparison.notes == ()


def test_the_same_point_with_other_figures_is_not_the_plan_itself():
    faster = PLAN.model_copy(update={"predicted": PLAN.predicted.model_copy(update={"step_s": 0.1})})
    assert compared(faster).reason == "faster"


def test_a_faster_strategy_is_not_explained_away():
    comparison = compared(other(step_s=0.15))
    assert comparison.reason == "faster"
    assert "25.0% faster" in comparison.verdict


def test_a_faster_strategy_of_another_micro_batch_is_told_where_the_plans_own_is_no_better():
    faster = of_micro_batch(other(step_s=0.15), 8)
    slow = (at(4, 0.21, 20), at(8, 0.15, 20))
    assert "made for a micro-batch of 4" in compared(faster, micro_batches=slow).verdict
    fast = (at(4, 0.16, 20), at(8, 0.15, 20))
    assert "made for a micro-batch of 4" not in compared(faster, micro_batches=fast).verdict


def test_a_plan_that_was_not_proved_says_how_much_faster_another_could_be():
    solver = PLAN.solver.model_copy(update={"status": "FEASIBLE", "gap": 0.3})
    assert "by at most 30.0%" in compared(other(step_s=0.15), PLAN.model_copy(update={"solver": solver})).verdict


def test_its_best_micro_batch_is_told_and_what_it_is_at_the_plans():
    comparison = compared(
        of_micro_batch(other(step_s=0.3), 1), micro_batches=(at(1, 0.3, 20), at(4, 0.25, 80, fits=False))
    )
    notes = " ".join(comparison.notes)
    assert "micro-batch 1 × 8; the plan has micro-batch 4 × 2" in notes
    assert "of 4 it would need 80.00 GiB, and 78.00 GiB are available" in notes


def test_differences_sum_to_the_totals_of_both():
    comparison = compared(other())
    for rows, total in ((comparison.time, "step"), (comparison.memory, "peak")):
        place = [row.name for row in rows].index(total)
        assert abs(sum(part.chosen for part in rows[:place]) - rows[place].chosen) < 1e-9
        assert abs(sum(part.other for part in rows[:place]) - rows[place].other) < 1e-9


def test_a_message_that_only_one_sends_is_none_of_the_other():
    comparison = compared(other(traffic=PLAN.predicted.traffic[:1]))
    sides = {row.operation: (row.chosen is not None, row.other is not None) for row in comparison.traffic}
    assert sides == {"all_gather": (True, False), "all_reduce": (True, True)}
    figures = comparison.traffic[1].other
    assert (figures.bytes, figures.count, figures.seconds, figures.known) == (4 * GIB, 6, 0.040, "modelled")


def test_figures_of_another_version_and_a_simulated_decision_are_told():
    assert any("plan again" in note for note in compared(other(step_s=0.3), is_current=False).notes)
    assert not any("plan again" in note for note in compared(other(step_s=0.3)).notes)
    played = PLAN.model_copy(update={"solver": PLAN.solver.model_copy(update={"decided_by": "simulation"})})
    assert "played through" in compared(other(step_s=0.15), played).verdict
