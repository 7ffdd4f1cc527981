"""Seconds of a step against arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_workload import hand_workload

from costmodels.communication import ByCause, message_times
from costmodels.engine import Cause, Message
from costmodels.network import DeviceSpeed, Network, NetworkCurve, NetworkLevel
from costmodels.step import StepTime, step_time
from costmodels.strategy import StepShape, Strategy

SPEED = DeviceSpeed(matmul_flop_per_s=1e9, memory_bytes_per_s=1e30, operator_launch_s=0.0, overlap=1.0)
NETWORK = Network((NetworkLevel(2, 1e9, 0.0),))
"""Two ranks; half of an all-gather's message enters each, at a byte per nanosecond."""
NEVER_UPDATED = {"frozen": (0, 1, 2, 3)}


def timed(*messages: Message, num_micro_batches: int = 1, overlap: float = 1.0, network: Network = NETWORK) -> StepTime:
    """Times the messages beside 4000 ns of forward and 8000 ns of backward per micro-batch."""
    return step_time(
        hand_workload(**NEVER_UPDATED),
        messages,
        (Strategy(1, 1, 1, 1),) * 3,
        StepShape(2, 1, num_micro_batches),
        network,
        replace(SPEED, overlap=overlap),
    )


def gathers(count: int, message_bytes: int = 2000) -> Message:
    return Message("all_gather", 1, 2, message_bytes, count, "forward")


def test_without_messages_a_step_is_its_compute() -> None:
    time = timed()
    assert (time.step_ns, time.compute.total_ns, time.exposed, time.kinds) == (12000, 12000, ByCause(), ())


def test_compute_hides_all_gathers_but_the_first_of_each_micro_batch() -> None:
    assert timed(gathers(4)).exposed == ByCause(forward_ns=1000)
    assert timed(gathers(12), num_micro_batches=3).exposed == ByCause(forward_ns=3000)


def test_communication_beyond_compute_is_exposed() -> None:
    assert timed(gathers(10)).exposed.forward_ns == 10_000 - 4000


def test_without_overlap_all_communication_is_exposed() -> None:
    assert timed(gathers(10), overlap=0.0).exposed.forward_ns == 10_000


def test_half_an_overlap_hides_half() -> None:
    """Of ten gathers the first is bare; half of the nine others could be hidden, but compute hides 2000 ns."""
    assert timed(gathers(10), overlap=0.5).exposed.forward_ns == 10_000 - 2000
    assert timed(gathers(4), overlap=0.5).exposed.forward_ns == 4000 - 1500


def test_one_bucket_as_large_as_the_model_hides_nothing() -> None:
    bucket = Message("reduce_scatter", 1, 2, 8000, 1, "backward")
    assert timed(bucket).exposed.backward_ns == 4000
    assert timed(replace(bucket, message_bytes=2000, count=4)).exposed.backward_ns == 1000


def test_only_one_message_of_each_micro_batch_is_bare() -> None:
    """Four gathers of 1000 ns once in a step, then shorter ones: the longest of three micro-batches are bare."""
    assert timed(gathers(4), gathers(8, 200), num_micro_batches=3).exposed.forward_ns == 3 * 1000
    # Too few of the longest: the micro-batches without one have a shorter message bare.
    assert timed(gathers(1), gathers(8, 200), num_micro_batches=3).exposed.forward_ns == 1000 + 2 * 100
    # No more messages than micro-batches: all are bare.
    assert timed(gathers(2), num_micro_batches=3).exposed.forward_ns == 2 * 1000


def test_the_first_gather_of_the_backward_is_fetched_ahead() -> None:
    assert timed(Message("all_gather", 1, 2, 8000, 1, "backward")).exposed.backward_ns == 0


@pytest.mark.parametrize("cause", ["boundary", "update", "control"])
def test_nothing_runs_beside_the_boundary_the_update_and_control(cause) -> None:
    time = timed(Message("all_reduce", 1, 2, 1000, 3, cause))
    assert time.exposed.total_ns == getattr(time.exposed, f"{cause}_ns") == 3000


def reductions(count: int, cause: Cause = "boundary") -> Message:
    """Each takes 1000 ns."""
    return Message("all_reduce", 1, 2, 1000, count, cause, beside_backward=cause == "boundary")


def test_the_last_backward_hides_all_reductions_beside_it_but_one() -> None:
    assert timed(reductions(4)).exposed == ByCause(boundary_ns=1000)


def test_earlier_backwards_hide_nothing_of_the_boundary() -> None:
    assert timed(reductions(20), num_micro_batches=3).exposed == ByCause(boundary_ns=20_000 - 8000)


def test_what_hides_the_reductions_of_backward_does_not_hide_the_boundary_too() -> None:
    exposed = timed(reductions(7, "backward"), reductions(4)).exposed
    assert (exposed.backward_ns, exposed.boundary_ns) == (1000, 4000 - 2000)


def spread(count: int) -> Message:
    """Gathers of updated parameters, 1000 ns each."""
    return Message("all_gather", 1, 2, 2000, count, "update", beside_forward=True)


def test_the_first_forward_hides_all_gathers_of_the_update_but_one() -> None:
    assert timed(spread(4)).exposed == ByCause(update_ns=1000)
    assert timed(spread(4), num_micro_batches=3).exposed == ByCause(update_ns=1000)


def test_later_forwards_hide_nothing_of_the_update() -> None:
    assert timed(spread(10), num_micro_batches=3).exposed == ByCause(update_ns=10_000 - 4000)


def test_what_hides_the_gathers_of_forward_does_not_hide_the_update_too() -> None:
    exposed = timed(gathers(4), spread(4)).exposed
    assert (exposed.forward_ns, exposed.update_ns) == (1000, 4000 - 1000)


def test_half_an_overlap_hides_half_of_the_update() -> None:
    assert timed(spread(4), overlap=0.5).exposed.update_ns == 4000 - 1500
    assert timed(spread(10), overlap=0.5).exposed.update_ns == 10_000 - 2000


def test_kinds_join_messages_and_share_out_what_is_exposed() -> None:
    time = timed(
        gathers(4),
        Message("all_gather", 1, 2, 6000, 2, "backward"),
        Message("all_reduce", 1, 2, 500, 2, "control"),
        Message("reduce_scatter", 1, 2, 4000, 3, "backward"),
    )
    gather, control, reduction = time.kinds
    assert (gather.operation, gather.total_bytes, gather.count, gather.duration_ns) == ("all_gather", 20_000, 6, 10_000)
    assert (control.operation, control.duration_ns, control.exposed_ns) == ("all_reduce", 1000, 1000)
    assert (reduction.operation, reduction.degree_to, reduction.total_bytes) == ("reduce_scatter", 2, 12_000)
    # Backward: 12000 ns, of which 2000 are bare and 8000 hidden, so a third of each message is exposed.
    assert time.exposed == ByCause(forward_ns=1000, backward_ns=4000, control_ns=1000)
    assert (gather.exposed_ns, reduction.exposed_ns) == (1000 + 2000, 2000)
    assert sum(kind.exposed_ns for kind in time.kinds) == time.exposed.total_ns


def test_a_kind_is_as_certain_as_its_least_certain_message() -> None:
    curve = NetworkCurve("all_gather", 1, 2, ((1000, 1e-6), (3000, 3e-6)))
    network = replace(NETWORK, curves=(curve,))
    assert timed(gathers(4, 1000), network=network).kinds[0].provenance == "measured"
    assert timed(gathers(4, 1000), gathers(4, 2000), network=network).kinds[0].provenance == "interpolated"
    assert timed(gathers(4, 1000), gathers(4, 9000), network=network).kinds[0].provenance == "modelled"


def test_a_message_between_equal_degrees_takes_no_time() -> None:
    assert message_times((Message("all_gather", 2, 2, 1000, 1, "forward"),), NETWORK)[0][0] == 0


def test_seconds_are_the_nanoseconds() -> None:
    time = timed(gathers(10))
    assert (time.step_s, time.compute_s, time.exposed_communication_s) == (18e-6, 12e-6, 6e-6)
    assert (time.kinds[0].seconds, time.kinds[0].exposed_s) == (10e-6, 6e-6)
