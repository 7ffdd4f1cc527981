"""Laws of the Pareto front, against brute force over random cost tables."""

from __future__ import annotations

from dataclasses import replace

from cost_tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.choose.front import front
from planner.cost_table import CostTable
from planner.solve import Solution, solve

EXAMPLES = settings(max_examples=60, deadline=None)


def amounts(point: Solution) -> tuple[int, int]:
    return point.option.step_ns(point.recomputed), point.option.peak_bytes(point.recomputed)


def every_choice(table: CostTable) -> list[tuple[int, int]]:
    return [(o.step_ns(r), o.peak_bytes(r)) for o in table.options for r in o.recomputations()]


def dominates(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


@EXAMPLES
@given(tables())
def test_the_front_is_every_choice_that_none_dominates_once_and_the_fastest_first(table: CostTable) -> None:
    choices = every_choice(table)
    undominated = {one for one in choices if not any(dominates(other, one) for other in choices)}
    assert [amounts(point) for point in front(table)] == sorted(undominated)


@EXAMPLES
@given(tables())
def test_no_point_of_the_front_dominates_another(table: CostTable) -> None:
    found = [amounts(point) for point in front(table)]
    assert not any(dominates(one, other) for one in found for other in found)


@EXAMPLES
@given(tables())
def test_the_first_point_within_the_budget_is_the_solvers_choice(table: CostTable) -> None:
    fitting = [point for point in front(table) if amounts(point)[1] <= table.budget_bytes]
    chosen = solve(table)
    first = fitting[0] if fitting else None
    assert (chosen is None) == (first is None)
    if chosen is not None and first is not None:
        assert (chosen.option, chosen.recomputed) == (first.option, first.recomputed)


@EXAMPLES
@given(tables(), st.integers(0, 2**34))
def test_the_budget_changes_no_point(table: CostTable, budget_bytes: int) -> None:
    other = replace(table, budget_bytes=budget_bytes)
    assert [(p.option, p.recomputed) for p in front(other)] == [(p.option, p.recomputed) for p in front(table)]


@EXAMPLES
@given(tables(), st.integers(0, 14))
def test_choices_that_need_more_memory_change_no_point_below_them(table: CostTable, twelfths: int) -> None:
    limit = table.enough_bytes * twelfths // 12
    small = table.where(lambda option: all(option.peak_bytes(r) <= limit for r in option.recomputations()))
    rest = table.where(lambda option: all(option.peak_bytes(r) > limit for r in option.recomputations()))
    both = replace(table, options=(*small.options, *rest.options))
    below = [amounts(point) for point in front(both) if amounts(point)[1] <= limit]
    assert below == [amounts(point) for point in front(small)]
