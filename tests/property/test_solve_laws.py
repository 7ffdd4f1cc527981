"""Laws of the solver, against brute force over random cost tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from cost_tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost_table import Cost, CostTable, undominated
from planner.solve import FASTEST, SMALLEST, Objective, solve

EXAMPLES = settings(max_examples=120, deadline=None)


def brute_force(table: CostTable, objectives: tuple[Objective, ...] = FASTEST) -> tuple[int, ...] | None:
    """Returns (objectives..., option's index, recomputation's index) of the best choice, or None."""
    ranked = []
    for order, option in enumerate(table.options):
        for place, recomputed in enumerate(option.recomputations()):
            if option.peak_bytes(recomputed) <= table.budget_bytes:
                by_name = {"time": option.step_ns(recomputed), "memory": option.peak_bytes(recomputed), "order": 0}
                ranked.append((*(by_name[name] for name in objectives), order, place))
    return min(ranked, default=None)


def answer(table: CostTable, objectives: tuple[Objective, ...] = FASTEST) -> tuple[int, ...] | None:
    solution = solve(table, objectives)
    if solution is None:
        return None
    by_name = {
        "time": solution.option.step_ns(solution.recomputed),
        "memory": solution.option.peak_bytes(solution.recomputed),
        "order": 0,
    }
    assert solution.status == "OPTIMAL"
    assert solution.objective == solution.bound == by_name[objectives[0]]
    order = next(i for i, option in enumerate(table.options) if option is solution.option)
    return (*(by_name[name] for name in objectives), order, solution.option.recomputations().index(solution.recomputed))


@EXAMPLES
@given(tables())
def test_the_choice_is_brute_forces_first_best(table: CostTable) -> None:
    assert answer(table) == brute_force(table)


@EXAMPLES
@given(tables())
def test_the_smallest_choice_is_brute_forces_smallest(table: CostTable) -> None:
    assert answer(table, SMALLEST) == brute_force(table, SMALLEST)


@EXAMPLES
@given(tables(), st.randoms(use_true_random=False))
def test_permuting_options_changes_no_cost(table: CostTable, random: object) -> None:
    options = list(table.options)
    random.shuffle(options)  # type: ignore[attr-defined]
    permuted = answer(replace(table, options=tuple(options)))
    original = answer(table)
    assert (permuted and permuted[:2]) == (original and original[:2])


@EXAMPLES
@given(tables(), st.integers(1, 2**34))
def test_more_memory_is_never_slower(table: CostTable, more_bytes: int) -> None:
    before = solve(table)
    after = solve(replace(table, budget_bytes=table.budget_bytes + more_bytes))
    assert before is None or (after is not None and after.objective <= before.objective)


@EXAMPLES
@given(tables())
def test_dropping_dominated_moments_keeps_every_peak(table: CostTable) -> None:
    for option in table.options:
        rows = undominated(np.array([(cost.constant, *cost.by_group) for cost in option.memory_bytes]))
        fewer = replace(option, memory_bytes=tuple(Cost(row[0], tuple(row[1:])) for row in rows.tolist()))
        for recomputed in option.recomputations():
            assert fewer.peak_bytes(recomputed) == option.peak_bytes(recomputed)
        for cost in fewer.memory_bytes:
            assert not any(other is not cost and dominates(other, cost) for other in fewer.memory_bytes)


def dominates(one: Cost, other: Cost) -> bool:
    """Returns whether a cost is at least another one whatever is recomputed."""
    slack = sum(min(0, mine - its) for mine, its in zip(one.by_group, other.by_group, strict=True))
    return one.constant + slack >= other.constant
