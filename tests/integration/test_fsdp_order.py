"""The order of messages among compute is that of the ideal schedule, on every rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from fsdp_order import NUM_LAYERS, Event, TracedStep, trace_step
from gloo_ranks import GlooRanks

LAYERS = [f"layers.{number}" for number in range(NUM_LAYERS)]
BACKWARD = LAYERS[::-1]


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(8) as started:
        yield started


def step_of(
    ranks: GlooRanks, degrees: tuple[int, int, int, int], num_micro_batches: int = 2, prefetch: int = 1
) -> TracedStep:
    """Returns what the ranks did for (p, s, g, o), after a check that all did the same."""
    steps: list[TracedStep] = ranks.run(trace_step, degrees, num_micro_batches, prefetch, timeout_s=60)
    assert all(step == steps[0] for step in steps)
    return steps[0]


def place(events: Sequence[Event], what: str, block: str, moment: str, after: int = 0) -> int:
    """Returns where an event is the first of its kind at or after a place."""
    return events.index(Event(what, block, moment), after)


def phase(events: Sequence[Event], what: str) -> list[Event]:
    """Returns the events of the forward, or those of the backward."""
    end_of_forward = place(events, "forward", LAYERS[-1], "ends")
    return list(events[:end_of_forward] if what == "forward" else events[end_of_forward:])


def whats(events: Sequence[Event]) -> set[str]:
    """Returns what there is among events."""
    return {event.what for event in events}


@pytest.mark.parametrize("prefetch", [0, 1, 2, 3])
@pytest.mark.parametrize("what", ["forward", "backward"])
def test_as_many_blocks_are_gathered_ahead_as_the_plan_says(ranks: GlooRanks, what: str, prefetch: int) -> None:
    order = LAYERS if what == "forward" else BACKWARD
    for micro_batch in step_of(ranks, (4, 4, 4, 4), prefetch=prefetch).micro_batches:
        events = phase(micro_batch, what)
        assert [event.block for event in events if event[0] == "gather" and event[2] == "starts"] == order
        for number, block in enumerate(order):
            begun = place(events, what, block, "begins")
            assert place(events, "gather", block, "is over") < begun
            in_flight = [
                ahead
                for ahead in order[number + 1 :]
                if place(events, "gather", ahead, "starts") < begun < place(events, "gather", ahead, "is over")
            ]
            assert in_flight == order[number + 1 : number + 1 + prefetch]


def test_parameters_kept_from_forward_are_not_gathered_again(ranks: GlooRanks) -> None:
    for micro_batch in step_of(ranks, (4, 1, 4, 4)).micro_batches:
        assert "gather" in whats(phase(micro_batch, "forward"))
        assert "gather" not in whats(phase(micro_batch, "backward"))


@pytest.mark.parametrize("degrees", [(4, 4, 4, 4), (2, 2, 4, 8), (4, 2, 2, 8), (1, 1, 4, 8)])
def test_a_block_is_reduced_beside_the_next_ones_backward_and_its_neighbours_gather(
    ranks: GlooRanks, degrees: tuple[int, int, int, int]
) -> None:
    for micro_batch in step_of(ranks, degrees).micro_batches:
        events = phase(micro_batch, "backward")
        for block, following in pairwise(BACKWARD):
            started = place(events, "reduce", block, "starts")
            # Where p = 1 it need not wait for the gradient of the block's input.
            end = "ends" if degrees[0] > 1 else "begins"
            assert place(events, "backward", block, end) < started
            assert started < place(events, "backward", following, "begins")
            if following != BACKWARD[-1]:
                # The first layer's input has no gradient: its backward ends with the whole.
                assert place(events, "backward", following, end) < place(events, "reduce", block, "is over")
            if degrees[0] > 1:
                assert place(events, "gather", following, "starts") < started
                assert started < place(events, "gather", following, "is over")


@pytest.mark.parametrize(
    "degrees", [(2, 2, 2, 4), (1, 1, 2, 4), (1, 1, 1, 4), (2, 2, 1, 2), (1, 1, 4, 4), (1, 1, 1, 1)]
)
def test_the_boundary_is_reduced_beside_the_last_backward_alone(
    ranks: GlooRanks, degrees: tuple[int, int, int, int]
) -> None:
    _, _, grad_degree, optim_degree = degrees
    stages = ["to slice"] if optim_degree > grad_degree else []
    stages += ["to world"] if optim_degree < 8 else []
    step = step_of(ranks, degrees, num_micro_batches=3)
    assert not whats(step.update) & {"reduce", "to slice", "to world"}
    for micro_batch in step.micro_batches[:-1]:
        assert not whats(micro_batch) & {"to slice", "to world"}
        assert ("reduce" in whats(micro_batch)) == (grad_degree > 1)
    events = phase(step.micro_batches[-1], "backward")
    waits = ["reduce"] if grad_degree > 1 else []
    for number, block in enumerate(BACKWARD[:-2]):
        for later, stage in enumerate([*waits, *stages]):
            if number + later + 1 < len(BACKWARD) - 1:
                # One block's backward, at least, for each stage.
                started = place(events, stage, block, "starts")
                end = "begins" if degrees[0] == 1 else "ends"
                assert place(events, "backward", BACKWARD[number + later], end) < started
                assert started < place(events, "backward", BACKWARD[number + later + 1], "begins")
                assert place(events, "backward", BACKWARD[number + later + 1], end) < place(
                    events, stage, block, "is over"
                )


@pytest.mark.parametrize("prefetch", [0, 1, 2])
@pytest.mark.parametrize("degrees", [(2, 2, 2, 8), (4, 4, 8, 8), (1, 1, 1, 8)])
def test_an_update_is_spread_one_block_further_ahead_than_gathers(
    ranks: GlooRanks, degrees: tuple[int, int, int, int], prefetch: int
) -> None:
    step = step_of(ranks, degrees, prefetch=prefetch)
    assert "spread" not in whats(step.micro_batches[1])
    assert [event.block for event in step.update if event[0] == "spread"] == LAYERS[: prefetch + 1]
    events = [*step.update_before, *step.micro_batches[0]]
    assert [event.block for event in events if event[0] == "spread" and event[2] == "starts"] == LAYERS
    for number, block in enumerate(LAYERS):
        started, over = (place(events, "spread", block, moment) for moment in ("starts", "is over"))
        assert over < place(events, "forward", block, "begins")
        if degrees[0] > 1:
            assert over < place(events, "gather", block, "starts")
        if number > prefetch:
            beside = LAYERS[number - prefetch - 1]
            assert started < place(events, "forward", beside, "begins")
            assert place(events, "forward", beside, "ends") < over
