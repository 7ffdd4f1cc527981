"""Laws of the solver, against brute force over random cost tables."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.strategy import StepShape, Strategy
from planner.cost_table import Cost, CostTable, Option, undominated
from planner.solve import FASTEST, SMALLEST, Objective, solve

DEGREES = (1, 2, 4, 8)
EXAMPLES = settings(max_examples=120, deadline=None)


@st.composite
def tables(draw: st.DrawFn) -> CostTable:
    num_classes = draw(st.integers(0, 3))
    # Small ranges make ties common, so that the tie-breaking objectives are tested too.
    unit = draw(st.sampled_from([1, 10**9, 2**33]))
    values = st.integers(0, 12).map(lambda value: value * unit)
    addends = st.integers(-6, 6).map(lambda value: value * unit)
    costs = st.builds(Cost, values, st.tuples(*[addends] * num_classes))
    allowed = st.sampled_from([(False, True), (False,), (True,)])
    options = [
        Option(
            strategy=Strategy(1, 1, 1, DEGREES[number % len(DEGREES)]),
            shape=StepShape(8, 1 + number // len(DEGREES), 1),
            may_recompute=tuple(draw(allowed) for _ in range(num_classes)),
            phases_ns=tuple(
                (*draw(st.lists(costs, min_size=1, max_size=2)), Cost(0, (0,) * num_classes)) for _ in range(2)
            ),
            memory_bytes=(*draw(st.lists(costs, min_size=1, max_size=3)), Cost(0, (0,) * num_classes)),
        )
        for number in range(draw(st.integers(1, 7)))
    ]
    return CostTable(
        engine="deepspeed",
        num_classes=num_classes,
        groups=tuple((number,) for number in range(num_classes)),
        options=tuple(options),
        budget_bytes=draw(st.integers(0, 14)) * unit,
    )


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
        fewer = replace(option, memory_bytes=undominated(option.memory_bytes))
        for recomputed in option.recomputations():
            assert fewer.peak_bytes(recomputed) == option.peak_bytes(recomputed)
