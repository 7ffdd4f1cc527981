"""Laws of the simulated step, for random models, strategies and machines, of both engines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from simulated_cases import Case, assigned, deepspeed, equal_blocks, ideal

from costmodels.communication import communication_time, message_times
from costmodels.compute import compute_time, segment_ns
from costmodels.fsdp.schedule import schedule
from costmodels.geometry import geometry
from costmodels.schedule import WHOLE, Compute, Start, messages_of
from costmodels.step import exposed_time
from planner.simulate.simulate import simulate

cases = st.one_of(ideal, deepspeed())


@given(cases)
def test_a_schedule_sends_what_the_engine_sends_and_computes_what_the_step_computes(case):
    sent, expected = Counter(), Counter()
    for message, times in messages_of(case.schedule):
        sent[message] += times
    for message in case.traffic:
        expected[replace(message, count=1)] += message.count
    assert sent == expected
    computed = compute_time(case.workload, case.assignment, case.shape, case.machine.speed)
    assert case.timeline().compute_ns == computed.total_ns


@given(cases)
def test_a_step_is_its_compute_and_what_is_exposed(case):
    timeline = case.timeline()
    assert timeline.step_ns == timeline.compute_ns + timeline.exposed.total_ns
    for part in timeline.parts:
        assert part.duration_ns == part.compute_ns + part.exposed.total_ns
        assert min(getattr(part.exposed, name) for name in part.exposed.__slots__) >= 0
        assert all(0 <= event.start_ns <= event.end_ns <= part.duration_ns for event in part.events)


@given(cases)
def test_no_step_is_faster_than_any_of_its_streams(case):
    timeline = case.timeline()
    assert timeline.step_ns >= timeline.compute_ns
    sizes = tuple(level.size for level in case.machine.network.levels)
    times = message_times(case.traffic, case.machine.network)
    for level in range(len(sizes)):
        busy_ns = sum(
            time_ns * message.count
            for message, (time_ns, _) in zip(case.traffic, times, strict=True)
            if level in [each.level for each in geometry(sizes, message.degree_from, message.degree_to)]
        )
        assert timeline.step_ns >= busy_ns


@given(cases)
def test_without_overlap_a_step_is_the_sum_of_all(case):
    case = case.with_overlap(0.0)
    times = message_times(case.traffic, case.machine.network)
    sent_ns = sum(time_ns * each.count for each, (time_ns, _) in zip(case.traffic, times, strict=True))
    assert case.timeline().step_ns == case.timeline().compute_ns + sent_ns


@given(cases)
def test_compute_never_runs_twice_at_once_nor_do_messages_that_share_a_level(case):
    sizes = tuple(level.size for level in case.machine.network.levels)
    for part in case.timeline().parts:
        streams: dict[object, list[tuple[int, int]]] = {}
        for event in part.events:
            keys: list[object] = ["compute"]
            if event.message is not None:
                spanned = geometry(sizes, event.message.degree_from, event.message.degree_to)
                keys = [each.level for each in spanned]
            for key in keys:
                streams.setdefault(key, []).append((event.start_ns, event.end_ns))
        # A moment between two nanoseconds is rounded down where something starts and up where it ends.
        slack_ns = 0 if case.machine.speed.overlap in (0.0, 1.0) else 1
        for stretches in streams.values():
            ordered = sorted(stretches)
            assert all(a[1] <= b[0] + slack_ns for a, b in pairwise(ordered))


def reference_ns(case: Case) -> int:
    """Returns the step for phi = 1, program by program: each thing begins when all that it waits for is over."""
    update_ns = compute_time(case.workload, case.assignment, case.shape, case.machine.speed).update_ns
    segments_ns = [segment_ns(each, case.shape.micro_batch_size, case.machine.speed) for each in case.workload.segments]
    sizes = tuple(level.size for level in case.machine.network.levels)
    step_ns = 0
    for part in case.schedule:
        now, ends, free = 0, [], dict.fromkeys(range(len(sizes)), 0)
        for instruction in part.instructions:
            if isinstance(instruction, Compute):
                whole_ns = (*segments_ns, update_ns)[instruction.segment]
                now += whole_ns * instruction.end // WHOLE - whole_ns * instruction.begin // WHOLE
            elif isinstance(instruction, Start):
                message = instruction.message
                levels = [each.level for each in geometry(sizes, message.degree_from, message.degree_to)]
                ((sent_ns, _),) = message_times((message,), case.machine.network)
                after = 0 if instruction.after is None else ends[instruction.after]
                ends.append(max(now, after, *(free[level] for level in levels)) + sent_ns)
                free.update(dict.fromkeys(levels, ends[-1]))
            else:
                now = max(now, *(ends if instruction.number is None else [ends[instruction.number]]), 0)
        step_ns += part.repeats * max([now, *ends])
    return step_ns


@given(cases)
def test_with_full_overlap_each_thing_begins_when_what_it_waits_for_is_over(case):
    case = case.with_overlap(1.0)
    assert case.timeline().step_ns == reference_ns(case)


@given(cases)
def test_slower_links_never_make_a_step_faster(case):
    for level in range(len(case.machine.network.levels)):
        assert case.timeline(case.slower(level)).step_ns >= case.timeline().step_ns


@given(assigned(frozen=True))
def test_more_prefetch_never_makes_a_step_slower_where_all_that_is_sent_are_gathers(drawn):
    """Beside reductions it may: what is fetched ahead takes their turn on the links, and a reduction is waited for."""
    workload, assignment, shape, machine = drawn
    schedules = [schedule(workload, assignment, shape, prefetch) for prefetch in range(4)]
    steps = [simulate(workload, each, assignment, shape, machine).step_ns for each in schedules]
    assert steps == sorted(steps, reverse=True)


@given(cases)
def test_a_step_of_more_micro_batches_takes_longer_by_them(case):
    one, update = case.timeline().parts[0], case.timeline().parts[-1]
    assert sum(part.repeats for part in case.schedule) == case.shape.num_micro_batches + 1
    assert case.timeline().step_ns >= case.shape.num_micro_batches * one.compute_ns + update.compute_ns


@given(cases)
def test_no_step_is_faster_than_the_solvers_bound_if_nothing_were_bare(case):
    """The bound takes the longest message of a micro-batch as the one that nothing hides.

    Where the first gather or the last reduction is a shorter one, the step can be faster than the bound, by the
    difference; and where messages of different levels run at once, by what runs beside.
    """
    case = case.with_overlap(1.0)
    speed, network = case.machine.speed, case.machine.network
    compute = compute_time(case.workload, case.assignment, case.shape, speed)
    sent = communication_time(case.traffic, network, case.shape.num_micro_batches, speed)
    phases = ("forward", "backward", "boundary", "update")
    bare = replace(sent, **{f"{each}_overlappable_ns": getattr(sent.duration, f"{each}_ns") for each in phases})
    sizes = tuple(level.size for level in network.levels)
    loaded = [{g.level for g in geometry(sizes, m.degree_from, m.degree_to)} for m in case.traffic]
    if not loaded or set.intersection(*loaded):
        assert case.timeline().step_ns >= compute.total_ns + exposed_time(compute, bare).total_ns


@given(equal_blocks())
def test_where_blocks_are_equal_no_step_is_faster_than_the_solvers_bound(case):
    # Of what overlaps in part, the bound rounds down for each message and each segment.
    slack_ns = 0 if case.machine.speed.overlap in (0.0, 1.0) else 1
    assert case.timeline().step_ns >= case.bound_ns() - slack_ns * sum(len(part.instructions) for part in case.schedule)
