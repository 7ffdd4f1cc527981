"""The solver's answers on tables small enough to read."""

from __future__ import annotations

from costmodels.strategy import StepShape, Strategy
from planner.cost_table import Cost, CostTable, Option
from planner.solve import SMALLEST, solve

GIB = 2**30
SHAPE = StepShape(8, 1, 1)


def option(degree: int, compute_ns: int, sent_ns: int, peak: Cost, recompute_ns: int = 0) -> Option:
    backward = (Cost(compute_ns, (recompute_ns,)), Cost(sent_ns, (0,)))
    return Option(Strategy(1, 1, 1, degree), SHAPE, ((False, True),), (backward,), (peak,))


def table(*options: Option, budget_bytes: int = 80 * GIB) -> CostTable:
    return CostTable("deepspeed", 1, ((0,),), options, budget_bytes)


def test_a_phase_takes_the_longer_of_its_bounds() -> None:
    solution = solve(table(option(1, 5, 9, Cost(0, (0,))), option(2, 8, 3, Cost(0, (0,)))))
    assert solution is not None
    assert (solution.objective, solution.option.strategy.optim_degree) == (8, 2)


def test_recomputation_is_chosen_only_where_memory_asks_for_it() -> None:
    layers = option(1, 100, 0, Cost(90 * GIB, (-30 * GIB,)), recompute_ns=30)
    tight, roomy = solve(table(layers)), solve(table(layers, budget_bytes=90 * GIB))
    assert tight is not None
    assert roomy is not None
    assert (tight.recomputed, tight.objective) == ((True,), 130)
    assert (roomy.recomputed, roomy.objective) == ((False,), 100)


def test_recomputation_hidden_by_communication_is_free() -> None:
    solution = solve(table(option(1, 100, 200, Cost(90 * GIB, (-30 * GIB,)), recompute_ns=30)))
    assert solution is not None
    assert (solution.recomputed, solution.objective) == ((True,), 200)


def test_equal_times_are_decided_by_memory_then_by_declared_order() -> None:
    large, small = option(1, 7, 7, Cost(2 * GIB, (0,))), option(2, 7, 7, Cost(GIB, (0,)))
    first = solve(table(large, small))
    assert first is not None
    assert first.option == small
    tied = solve(table(small, option(4, 7, 7, Cost(GIB, (0,)))))
    assert tied is not None
    assert (tied.option, tied.recomputed) == (small, (False,))


def test_nothing_fits_is_an_answer_and_the_smallest_is_still_found() -> None:
    costs = table(option(1, 1, 1, Cost(100 * GIB, (0,))), option(2, 1, 1, Cost(120 * GIB, (-30 * GIB,))))
    assert solve(costs) is None
    nearest = solve(costs, SMALLEST, 120 * GIB)
    assert nearest is not None
    assert nearest.objective == 90 * GIB


def test_coefficients_beyond_32_bits_are_proved_right() -> None:
    """OR-Tools 9.15 with its presolve calls 3e9 the least memory of these three; it is 1e9."""
    giga = 10**9
    costs = tuple(
        Option(Strategy(1, 1, 1, degree), SHAPE, ((False, True),) * 2, ((Cost(0, (0, 0)),),), moments)
        for degree, moments in (
            (1, (Cost(2 * giga, (-giga, giga)), Cost(giga, (-2 * giga, giga)), Cost(0, (0, 0)))),
            (2, (Cost(3 * giga, (-giga, giga)), Cost(4 * giga, (2 * giga, -2 * giga)), Cost(0, (0, 0)))),
            (4, (Cost(3 * giga, (giga, -2 * giga)), Cost(2 * giga, (-3 * giga, 3 * giga)), Cost(0, (0, 0)))),
        )
    )
    solution = solve(CostTable("deepspeed", 2, ((0,), (1,)), costs, 4 * giga), SMALLEST)
    assert solution is not None
    assert solution.objective == solution.bound == giga
