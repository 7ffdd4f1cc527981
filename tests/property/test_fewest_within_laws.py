"""The least number whose value is within a budget is found, whatever the values, and soon where they lie on a line."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from planner.choose.recompute_fewer import fewest_within

FALLING = st.lists(st.integers(0, 10**12), min_size=1, max_size=200).map(lambda values: sorted(values, reverse=True))


def found(values: list[int], budget: int) -> tuple[tuple[int, int], list[int]]:
    """What is found, and which numbers were looked at."""
    looked_at: list[int] = []

    def value(number: int) -> int:
        looked_at.append(number)
        return values[number]

    return fewest_within(budget, value, (len(values) - 1, values[-1])), looked_at


@given(FALLING, st.data())
def test_the_least_number_within_the_budget_is_found(values: list[int], data: st.DataObject) -> None:
    budget = data.draw(st.integers(values[-1], values[0] + 1))
    first = bisect_left([-value for value in values], -budget)
    (number, value), looked_at = found(values, budget)
    assert (number, value) == (first, values[first])
    assert len(looked_at) <= 3 * len(values).bit_length() + 1
    assert len(set(looked_at)) == len(looked_at)


@given(st.integers(1, 400), st.integers(1, 10**9), st.integers(0, 10**12), st.data())
def test_on_a_straight_line_three_are_looked_at(number: int, step: int, least: int, data: st.DataObject) -> None:
    values = [least + step * (number - each) for each in range(number + 1)]
    budget = data.draw(st.integers(least, values[0]))
    (first, _), looked_at = found(values, budget)
    assert first == bisect_left([-value for value in values], -budget)
    assert len(looked_at) <= 3
