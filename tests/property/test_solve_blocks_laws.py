"""Per-class choices: the table's totals are the exact costs, and the solver's choice is that of brute force."""

import pytest
from block_cases import BlockCase, block_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.block_table import strategies_of
from planner.estimate_blocks import estimate_blocks
from planner.solve_blocks import solve_blocks


def table_of(case: BlockCase):
    (table,) = estimate_blocks(case.workload, case.machine, (case.shape,), case.may_recompute)
    return table


def assert_as_brute_force(case: BlockCase, part: float) -> None:
    """Within a budget between the least and the greatest peak of all choices."""
    every = [(case.costs(chosen), chosen) for chosen in case.choices()]
    least, greatest = (pick(peak for (_, peak), _ in every) for pick in (min, max))
    budget_bytes = least + int(part * (greatest - least))
    table = table_of(case)
    best = min(costs for costs, _ in every if costs[1] <= budget_bytes)
    found = solve_blocks((table,), budget_bytes)
    assert found is not None
    assert (found.step_ns, found.peak_bytes) == best
    assert (found.bound, found.status) == (best[0], "OPTIMAL")
    assert case.costs(strategies_of(table, found.choice)) == best
    assert solve_blocks((table,), least - 1) is None


@settings(max_examples=40, deadline=None, derandomize=True)
@given(block_cases(), st.floats(0, 1))
def test_the_choice_is_that_of_brute_force(case: BlockCase, part: float) -> None:
    assert_as_brute_force(case, part)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(block_cases(), st.floats(0, 1))
def test_the_choice_is_that_of_brute_force_in_many_cases(case: BlockCase, part: float) -> None:
    assert_as_brute_force(case, part)
