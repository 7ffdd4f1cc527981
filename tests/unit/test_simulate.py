"""The played step against timelines drawn by hand: two ranks, a byte per nanosecond, 1000 ns of forward per block."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_workload import hand_workload

from costmodels.communication import ByCause
from costmodels.engine import Message
from costmodels.fsdp.schedule import schedule as ideal_schedule
from costmodels.network import DeviceSpeed, Network, NetworkLevel
from costmodels.schedule import WHOLE, Compute, Instruction, Part, Start, Wait
from costmodels.strategy import StepShape, Strategy
from planner.machine import Machine
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Event, Timeline

SPEED = DeviceSpeed(matmul_flop_per_s=1e9, memory_bytes_per_s=1e30, operator_launch_s=0.0, overlap=1.0)
NETWORK = Network((NetworkLevel(2, 1e9, 0.0),))
TWO_LEVELS = Network((NetworkLevel(2, 1e9, 0.0), NetworkLevel(2, 1e9, 0.0)))
FROZEN = hand_workload(frozen=(0, 1, 2, 3))
"""Nothing to update."""


def gather(message_bytes: int = 2000, degree_from: int = 1, degree_to: int = 2) -> Message:
    """Takes half as many nanoseconds as it has bytes."""
    return Message("all_gather", degree_from, degree_to, message_bytes, 1, "forward")


def played(*instructions: Instruction, overlap: float = 1.0, network: Network = NETWORK, repeats: int = 1) -> Timeline:
    machine = Machine(network, replace(SPEED, overlap=overlap), 1e9, 10**9, 2)
    shape = StepShape(network.world_size, 1, repeats)
    part = Part("micro-batch", repeats, instructions)
    return simulate(FROZEN, (part,), (Strategy(1, 1, 1, 1),) * 3, shape, machine)


def spans(timeline: Timeline, stream: str) -> list[tuple[int, int]]:
    return [(event.start_ns, event.end_ns) for event in timeline.parts[0].events if event.stream == stream]


FORWARD = [Compute("forward", number) for number in range(4)]


def test_compute_waits_for_its_gather_and_no_other() -> None:
    timeline = played(Start(gather()), Start(gather(3000)), Wait(0), FORWARD[0], Wait(1), FORWARD[1])
    assert spans(timeline, "communication") == [(0, 1000), (1000, 2500)]
    assert spans(timeline, "compute") == [(1000, 2000), (2500, 3500)]
    assert timeline.exposed == ByCause(forward_ns=1500)


def test_messages_of_one_level_take_turns_and_those_of_two_run_at_once() -> None:
    outer = gather(2000, 2, 4)  # two groups of it share the level: 2000 ns
    one_level = played(Start(gather()), Start(gather()), Wait(), network=TWO_LEVELS)
    two_levels = played(Start(gather()), Start(outer), Wait(), network=TWO_LEVELS)
    assert spans(one_level, "communication") == [(0, 1000), (1000, 2000)]
    assert spans(two_levels, "communication") == [(0, 1000), (0, 2000)]


def test_a_message_that_loads_both_levels_waits_for_both() -> None:
    timeline = played(Start(gather()), Start(gather(2000, 2, 4)), Start(gather(2000, 1, 4)), Wait(), network=TWO_LEVELS)
    assert spans(timeline, "communication")[2][0] == 2000


def test_a_message_that_sends_on_a_result_begins_after_it() -> None:
    timeline = played(Start(gather(4000)), Start(gather(2000, 2, 4), after=0), Wait(), network=TWO_LEVELS)
    assert spans(timeline, "communication") == [(0, 2000), (2000, 4000)]


@pytest.mark.parametrize(("overlap", "step_ns"), [(1.0, 2000), (0.5, 2500), (0.0, 3000)])
def test_beside_each_other_c_and_k_take_their_sum_less_phi_times_the_lesser(overlap: float, step_ns: int) -> None:
    timeline = played(Start(gather(4000)), FORWARD[0], Wait(), overlap=overlap)
    assert timeline.step_ns == step_ns == 1000 + 2000 - overlap * 1000
    assert timeline.exposed.total_ns == step_ns - 1000


def test_a_segment_can_be_stopped_within() -> None:
    half = WHOLE // 2
    timeline = played(Start(gather()), Compute("forward", 0, 0, half), Wait(0), Compute("forward", 0, half, WHOLE))
    assert spans(timeline, "compute") == [(0, 500), (1000, 1500)]


def test_equal_micro_batches_are_played_once_and_counted_as_many() -> None:
    timeline = played(FORWARD[0], repeats=7)
    assert timeline.step_ns == 7 * 1000
    assert timeline.compute_ns == 7 * 1000
    assert len(timeline.parts) == 1


def order(prefetch: int) -> list[str]:
    """The ideal schedule of four equal blocks over two ranks: forward of the only micro-batch."""
    workload = hand_workload((1000,) * 4, (0,) * 4)
    strategy = Strategy(2, 2, 2, 2)
    part = ideal_schedule(workload, (strategy,), StepShape(2, 1, 1), prefetch)[0]
    texts = []
    for instruction in part.instructions:
        if isinstance(instruction, Compute) and instruction.work == "backward":
            break
        if isinstance(instruction, Compute):
            texts.append(f"forward {instruction.segment}")
        elif isinstance(instruction, Start) and instruction.message.cause == "forward":
            texts.append(f"gather {instruction.blocks[0]}")
        elif isinstance(instruction, Wait):
            texts.append(f"wait {instruction.number}")
    return texts


def test_a_block_is_gathered_while_the_one_before_it_computes() -> None:
    assert order(1)[:6] == ["gather 0", "wait 0", "gather 1", "forward 0", "wait 1", "gather 2"]


def test_without_prefetch_each_block_waits_for_its_own_gather() -> None:
    assert order(0)[:6] == ["gather 0", "wait 0", "forward 0", "gather 1", "wait 1", "forward 1"]


def test_two_ahead_are_gathered_two_ahead() -> None:
    assert order(2)[:6] == ["gather 0", "wait 0", "gather 1", "gather 2", "forward 0", "wait 1"]


def test_events_say_what_and_of_which_block() -> None:
    workload = hand_workload((1000,) * 2, (0,) * 2)
    machine = Machine(NETWORK, SPEED, 1e9, 10**9, 2)
    strategy, shape = Strategy(2, 2, 2, 2), StepShape(2, 1, 1)
    timeline = simulate(workload, ideal_schedule(workload, (strategy,), shape), (strategy,), shape, machine)
    first = timeline.parts[0].events[0]
    assert first == Event("communication", "forward", (0,), 0, 1000, gather())
    assert [event.what for event in timeline.parts[0].events if event.stream == "compute"] == [
        "forward",
        "forward",
        "backward",
        "backward",
    ]
