"""What a run found is folded into a profile: for its messages and its model, and for nothing else."""

from __future__ import annotations

from datetime import date

import pytest
from hand_workload import hand_workload

from costmodels.collectives import collective_time
from hw_profiles.load import load, read_profile
from hw_profiles.save import save
from planner import estimate
from planner.calibrate import Calibrated, calibrate
from planner.errors import InputError
from planner.job import Job
from planner.machine import machine
from planner.model_graph import ModelGraph, ModelSource
from planner.read.planned_folder import PlannedFolder
from planner.run.run_report import RunReport, TimedApart, TimedMessage, predicted_figures

DAY = date(2026, 12, 1)
GRAPH = ModelGraph(
    name="Net",
    source=ModelSource(spec="net.py:net", kind="file", arguments={}),
    precision="bf16",
    device="cuda",
    sequence_length=512,
    traced_by="fake",
    workload=hand_workload(),
)
PROFILE = load("dgx-a100-80gb", num_nodes=2)
JOB = Job(global_batch_size=32, sequence_length=512, engine="deepspeed", recompute="none", offload="none")
GATHER = ("all_gather", 1, 16, 1 << 20)


def planned(profile=PROFILE, degrees=(16, 16, 16)) -> PlannedFolder:
    return PlannedFolder(estimate(GRAPH, profile, JOB, degrees), GRAPH, profile)


def message(seconds: float, spread: float = 0.0, what=GATHER) -> TimedMessage:
    operation, degree_from, degree_to, size = what
    return TimedMessage(
        operation=operation,
        degree_from=degree_from,
        degree_to=degree_to,
        bytes=size,
        count=1,
        seconds=seconds,
        spread=spread,
    )


def report(of: PlannedFolder, compute_factor: float = 1.0, *messages: TimedMessage) -> RunReport:
    figures = predicted_figures(of.plan.predicted)
    computed_s = of.plan.predicted.compute_s * compute_factor
    apart = TimedApart(compute_s=(computed_s,) * 3, messages=messages)
    return RunReport(steps=(), measured=figures, predicted=figures, apart=apart)


def told(profile, what=GATHER) -> float:
    return collective_time(*what, machine(profile, "bf16").network).seconds


def calibrated(compute_factor: float = 1.0, *messages: TimedMessage) -> Calibrated:
    of = planned()
    return calibrate(of, report(of, compute_factor, *messages), DAY)


def test_what_was_timed_is_what_is_told_afterwards():
    found = calibrated(3.0, message(5 * told(PROFILE)))
    assert told(found.profile) == pytest.approx(5 * told(PROFILE))
    before, after = (estimate(GRAPH, each, JOB, (16, 16, 16)).predicted.compute_s for each in (PROFILE, found.profile))
    # Each part of a step is of whole nanoseconds.
    assert after == pytest.approx(3 * before, rel=0.1)
    assert found.after_s > found.before_s


@pytest.mark.parametrize(
    "other",
    [
        ("all_gather", 1, 8, 1 << 20),
        ("all_gather", 8, 16, 1 << 20),
        ("reduce_scatter", 1, 16, 1 << 20),
        ("all_gather", 1, 16, 1 << 21),
        ("all_gather", 1, 16, 1 << 10),
    ],
)
def test_other_messages_are_told_as_before(other):
    found = calibrated(1.0, message(5 * told(PROFILE)))
    assert told(found.profile, other) == told(PROFILE, other)


def test_other_models_and_precisions_compute_as_before():
    found = calibrated(3.0)
    another = GRAPH.model_copy(update={"name": "Other"})
    for graph, precision in ((another, "bf16"), (GRAPH, "fp16"), (None, "bf16")):
        assert machine(found.profile, precision, graph).speed == machine(PROFILE, precision, graph).speed
    assert machine(found.profile, "bf16", GRAPH).speed != machine(PROFILE, "bf16", GRAPH).speed


def test_what_differs_by_no_more_than_its_timings_stays():
    found = calibrated(1.01, message(1.3 * told(PROFILE), spread=0.4))
    assert told(found.profile) == pytest.approx(told(PROFILE))
    assert [each.is_folded for each in found.figures] == [False, False]


def test_a_message_that_was_told_well_does_not_take_its_neighbour_s_factor():
    near = ("all_gather", 1, 16, 5 << 18)
    found = calibrated(1.0, message(5 * told(PROFILE)), message(told(PROFILE, near), what=near))
    assert told(found.profile, near) == pytest.approx(told(PROFILE, near))
    assert told(found.profile) == pytest.approx(5 * told(PROFILE))


def test_a_second_run_corrects_what_the_first_has_left(tmp_path):
    first = calibrated(3.0, message(5 * told(PROFILE)))
    of = planned(first.profile)
    second = calibrate(of, report(of, 0.5, message(4 * told(PROFILE))), date(2026, 12, 2))
    assert told(second.profile) == pytest.approx(4 * told(PROFILE))
    (computed,) = second.profile.calibration.compute
    assert computed.factor == pytest.approx(1.5, rel=0.1)
    assert second.profile.sources["calibration.messages.0"].endswith("2026-12-02")
    save(second.profile, tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json") == second.profile


def test_what_an_earlier_run_found_of_other_messages_stays_with_its_source():
    first = calibrated(1.0, message(5 * told(PROFILE)))
    other = ("reduce_scatter", 1, 16, 1 << 20)
    of = planned(first.profile)
    second = calibrate(of, report(of, 1.0, message(2 * told(PROFILE, other), what=other)), date(2026, 12, 2))
    assert [each.operation for each in second.profile.calibration.messages] == ["all_gather", "reduce_scatter"]
    sources = [second.profile.sources[f"calibration.messages.{index}"][-10:] for index in (0, 1)]
    assert sources == ["2026-12-01", "2026-12-02"]


@pytest.mark.parametrize("factor", [0.0, 1 / 30, 30.0])
def test_what_is_absurd_is_refused(factor):
    with pytest.raises(InputError, match=r"compute was predicted to take .* Nothing was written"):
        calibrated(factor)
    with pytest.raises(InputError, match=r"all-gather over 16, 1\.0+ MiB was predicted"):
        calibrated(1.0, message(factor * told(PROFILE)))


def test_a_run_that_timed_nothing_apart_is_refused():
    of = planned()
    with pytest.raises(InputError, match="--calibrate"):
        calibrate(of, report(of).model_copy(update={"apart": None}), DAY)
