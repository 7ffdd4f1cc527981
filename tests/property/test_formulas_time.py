"""Laws of compute and step time."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from formula_cases import Case, cases
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.compute import compute_time
from costmodels.fsdp import FSDP
from costmodels.network import DeviceSpeed, Network
from costmodels.step import StepTime, step_time

EXAMPLES = settings(max_examples=150, deadline=None)
FASTER = st.floats(1.0, 8.0)


def timed(case: Case) -> StepTime:
    messages = FSDP.traffic(case.workload, case.assignment, case.shape)
    return step_time(case.workload, messages, case.assignment, case.shape, case.network, case.speed)


@EXAMPLES
@given(cases())
def test_a_step_is_its_compute_and_what_is_exposed_exactly(case: Case) -> None:
    time = timed(case)
    exposed = time.exposed
    causes = (exposed.forward_ns, exposed.backward_ns, exposed.boundary_ns, exposed.update_ns, exposed.control_ns)
    assert time.step_ns - time.compute.total_ns == sum(causes) == sum(kind.exposed_ns for kind in time.kinds)
    assert all(each >= 0 for each in causes)
    assert all(0 <= kind.exposed_ns <= kind.duration_ns for kind in time.kinds)


@EXAMPLES
@given(cases(), FASTER)
def test_more_bandwidth_is_never_slower(case: Case, factor: float) -> None:
    levels = tuple(
        replace(level, unit_bytes_per_s=level.unit_bytes_per_s * factor, alpha_s=level.alpha_s / factor)
        for level in case.network.levels
    )
    assert timed(replace(case, network=Network(levels))).step_ns <= timed(case).step_ns


@EXAMPLES
@given(cases(), FASTER, FASTER)
def test_a_faster_device_is_never_slower(case: Case, products: float, memory: float) -> None:
    speed = case.speed
    faster = DeviceSpeed(
        speed.matmul_flop_per_s * products,
        speed.memory_bytes_per_s * memory,
        speed.operator_launch_s / products,
        speed.overlap,
    )
    assert timed(replace(case, speed=faster)).step_ns <= timed(case).step_ns


@EXAMPLES
@given(cases(), st.floats(0.0, 1.0))
def test_more_overlap_is_never_slower(case: Case, overlap: float) -> None:
    some = timed(replace(case, speed=replace(case.speed, overlap=overlap)))
    assert timed(replace(case, speed=replace(case.speed, overlap=1.0))).step_ns <= some.step_ns
    assert some.step_ns <= timed(replace(case, speed=replace(case.speed, overlap=0.0))).step_ns


@EXAMPLES
@given(cases())
def test_overlap_hides_no_more_than_there_is(case: Case) -> None:
    """A step is never shorter than its compute, nor than its communication."""
    time = timed(case)
    sent_ns = sum(kind.duration_ns for kind in time.kinds)
    assert time.step_ns >= max(time.compute.total_ns, sent_ns)
    assert time.step_ns <= time.compute.total_ns + sent_ns


@EXAMPLES
@given(cases())
def test_each_class_adds_its_recomputation_whatever_the_others_do(case: Case) -> None:
    """What a solver relies on: every term of a step is linear in which classes are recomputed."""

    def terms(flags: tuple[bool, ...]) -> tuple[int, ...]:
        assignment = tuple(
            replace(each, recompute="full" if flag else "none")
            for each, flag in zip(case.assignment, flags, strict=True)
        )
        time = compute_time(case.workload, assignment, case.shape, case.speed)
        return (time.forward_ns, time.backward_ns, time.forward_overlappable_ns, time.backward_overlappable_ns)

    num = case.workload.num_classes
    none = terms((False,) * num)
    alone = [terms(tuple(index == number for index in range(num))) for number in range(num)]
    for flags in product((False, True), repeat=num):
        added = [
            base + sum(single[term] - base for single, flag in zip(alone, flags, strict=True) if flag)
            for term, base in enumerate(none)
        ]
        assert terms(flags) == tuple(added)
