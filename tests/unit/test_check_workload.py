"""A workload that no trace can have made is told from one that can."""

from dataclasses import replace

import pytest
from hand_workload import hand_workload

from costmodels.check_workload import problem_of
from costmodels.workload import Amount, Event, Timeline

WHOLE = hand_workload()


def _with_segment(number, **changes):
    segments = list(WHOLE.segments)
    segments[number] = replace(segments[number], **changes)
    return replace(WHOLE, segments=tuple(segments))


def test_a_whole_workload_has_no_problem():
    assert problem_of(WHOLE) is None


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        (replace(WHOLE, segments=()), "no segments"),
        (replace(WHOLE, blocks=WHOLE.blocks[1:]), "not every parameter is in one block"),
        (replace(WHOLE, segments=WHOLE.segments[::-1]), "forward comes after backward"),
        (replace(WHOLE, buffer_bytes=-1), "fewer than no bytes"),
        (replace(WHOLE, linears=((0, 9),)), "linear operator's parameters"),
        (replace(WHOLE, parameters=(WHOLE.parameters[0],) * 4), "two parameters have one name"),
        (
            replace(WHOLE, parameters=(replace(WHOLE.parameters[0], shape=(2**60,)), *WHOLE.parameters[1:])),
            "elements",
        ),
        (
            replace(WHOLE, parameters=(replace(WHOLE.parameters[0], expert_axis=3), *WHOLE.parameters[1:])),
            "has no axis 3",
        ),
        (_with_segment(0, block=9), "segment 0 is of no block"),
        (_with_segment(2, flop=Amount(-5, 1)), "segment 2 does less than nothing"),
        (_with_segment(5, gradients=(7,)), "segment 5 completes gradients of no parameter"),
        (_with_segment(5, timeline=Timeline((Event(1, 0),), (2,))), "complete at no time"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_damaged_is_named(damaged, text):
    assert text in (problem_of(damaged) or "")
