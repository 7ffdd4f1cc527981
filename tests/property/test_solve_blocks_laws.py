"""Per-class choices: the table's totals are the costs, and the solver's choice is that of brute force."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from block_cases import BlockCase, block_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.degrees import strategies
from costmodels.strategy import Strategy
from planner.block_table import BlockTable, Choice, GroupChoice, strategies_of
from planner.block_totals import block_totals
from planner.estimate_blocks import estimate_blocks
from planner.solve_blocks import solve_blocks


def table_of(case: BlockCase):
    (table,) = estimate_blocks(case.workload, case.machine, (case.shape,), case.may_recompute)
    return table


def choice_of(table: BlockTable, chosen: Mapping[int, Strategy]) -> Choice:
    """Counts what is chosen for the blocks of each group."""
    found = []
    for group in table.groups:
        plain = [replace(chosen[block], recompute="none") for block in group.blocks]
        recomputed = sum(chosen[block].recompute == "full" for block in group.blocks)
        found.append(GroupChoice(tuple((each, plain.count(each)) for each in dict.fromkeys(plain)), recomputed))
    return tuple(found)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(block_cases(), st.randoms(use_true_random=False), st.booleans())
def test_the_table_has_the_exact_time_and_a_bound_of_memory(case: BlockCase, random: Random, uniform: bool) -> None:
    """Exact too where equal blocks have one strategy."""
    table = table_of(case)
    space = strategies(case.machine.level_sizes)
    chosen: dict[int, Strategy] = {}
    for group in table.groups:
        count = random.randint(group.least_recomputed, group.most_recomputed)
        picked = [random.choice(space) if group.has_params else Strategy(1, 1, 1, 1) for _ in group.blocks]
        picked = picked[:1] * len(picked) if uniform else picked
        picked = [replace(each, recompute="full") if place < count else each for place, each in enumerate(picked)]
        chosen.update(zip(group.blocks, picked, strict=True))
    choice = choice_of(table, chosen)
    step_ns, peak_bytes = block_totals(table, choice)
    exact_ns, exact_bytes = case.costs(strategies_of(table, choice))
    assert step_ns == exact_ns
    assert peak_bytes == exact_bytes if uniform else peak_bytes >= exact_bytes


def assert_as_brute_force(case: BlockCase, part: float) -> None:
    """Within a budget between the least and the greatest peak of all choices."""
    table = table_of(case)
    every = [block_totals(table, choice_of(table, chosen)) for chosen in case.choices()]
    least, greatest = (pick(peak for _, peak in every) for pick in (min, max))
    budget_bytes = least + int(part * (greatest - least))
    best = min(costs for costs in every if costs[1] <= budget_bytes)
    found = solve_blocks((table,), budget_bytes)
    assert found is not None
    assert (found.step_ns, found.peak_bytes) == best
    assert (found.bound, found.status) == (best[0], "OPTIMAL")
    step_ns, peak_bytes = case.costs(strategies_of(table, found.choice))
    assert step_ns == best[0]
    assert peak_bytes <= best[1]
    assert solve_blocks((table,), least - 1) is None


@settings(max_examples=15, deadline=None, derandomize=True)
@given(block_cases(), st.floats(0, 1))
def test_the_choice_is_that_of_brute_force(case: BlockCase, part: float) -> None:
    assert_as_brute_force(case, part)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(block_cases(), st.floats(0, 1))
def test_the_choice_is_that_of_brute_force_in_many_cases(case: BlockCase, part: float) -> None:
    assert_as_brute_force(case, part)


def figures(case: BlockCase, budget_bytes: int | None) -> tuple[int, int] | None:
    found = solve_blocks((table_of(case),), budget_bytes)
    return None if found is None else (found.step_ns, found.peak_bytes)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(block_cases(), st.floats(0, 1), st.floats(0, 1))
def test_more_memory_never_makes_the_choice_slower(case: BlockCase, less: float, more: float) -> None:
    least = solve_blocks((table_of(case),), None, ("memory", "time"))
    fastest = figures(case, None)
    assert least is not None
    assert fastest is not None
    less, more = sorted((less, more))
    budgets = [least.peak_bytes + int(part * (fastest[1] - least.peak_bytes)) for part in (less, more)]
    tight, wide = (figures(case, budget) for budget in budgets)
    assert tight is not None
    assert wide is not None
    assert wide[0] <= tight[0]
    assert fastest[0] <= wide[0]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(block_cases(), st.floats(1.0, 4.0))
def test_more_bandwidth_never_makes_the_choice_slower(case: BlockCase, times: float) -> None:
    network = case.machine.network
    faster = tuple(replace(level, unit_bytes_per_s=level.unit_bytes_per_s * times) for level in network.levels)
    machine = replace(case.machine, network=replace(network, levels=faster))
    budget = figures(case, None)
    assert budget is not None
    slow, fast = figures(case, budget[1]), figures(replace(case, machine=machine), budget[1])
    assert slow is not None
    assert fast is not None
    assert fast[0] <= slow[0]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(block_cases(), st.randoms(use_true_random=False), st.floats(0, 1))
def test_the_order_of_groups_and_of_options_changes_nothing(case: BlockCase, random: Random, part: float) -> None:
    table = table_of(case)
    groups = [
        replace(
            group,
            params=tuple(random.sample(group.params, len(group.params))),
            grads=tuple(random.sample(group.grads, len(group.grads))),
            secondaries=tuple(random.sample(group.secondaries, len(group.secondaries))),
        )
        for group in random.sample(table.groups, len(table.groups))
    ]
    least, fastest = solve_blocks((table,), None, ("memory", "time")), figures(case, None)
    assert least is not None
    assert fastest is not None
    budget_bytes = least.peak_bytes + int(part * (fastest[1] - least.peak_bytes))
    found = [solve_blocks((each,), budget_bytes) for each in (table, replace(table, groups=tuple(groups)))]
    assert [(each.step_ns, each.peak_bytes) for each in found if each is not None] == [figures(case, budget_bytes)] * 2
