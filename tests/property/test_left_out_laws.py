"""Laws of tables without what needs too much memory: every answer is that of the whole table, found the slow way."""

from __future__ import annotations

from dataclasses import replace

from cost_tables import tables
from hypothesis import given, settings
from hypothesis import strategies as st
from test_memory_laws import workloads
from test_table_laws import ENGINES, candidates, machines, shapes_on

from costmodels.least_peak import least_peak_bytes
from costmodels.memory import step_memory
from costmodels.workload import Workload
from planner.cost_table import CostTable
from planner.estimate import estimate
from planner.estimate_smallest import estimate_smallest
from planner.machine import Machine
from planner.solve import FASTEST, SMALLEST, solve
from planner.try_all import try_all

EXAMPLES = settings(max_examples=25, deadline=None)
engines = st.sampled_from(tuple(ENGINES))

Choices = dict[tuple[object, ...], tuple[int, int]]


def choices(table: CostTable, within_bytes: int) -> Choices:
    """Returns time and memory of every choice that needs no more, in the table's order."""
    return {
        (option.strategy, option.shape, recomputed): (option.step_ns(recomputed), option.peak_bytes(recomputed))
        for option in table.options
        for recomputed in option.recomputations()
        if option.peak_bytes(recomputed) <= within_bytes
    }


@EXAMPLES
@given(st.data(), workloads(), machines, engines, st.integers(0, 8))
def test_a_table_within_a_budget_is_the_whole_one_without_what_needs_more(
    data: st.DataObject, workload: Workload, where: Machine, name: str, eighth: int
) -> None:
    asked = (workload, ENGINES[name], where, data.draw(candidates(where, name)), shapes_on(where), "auto", 10**12)
    whole = estimate(*asked)
    peaks = sorted(peak for _, peak in choices(whole, 10**15).values()) or [0]
    within_bytes = peaks[eighth * (len(peaks) - 1) // 8]
    found = estimate(*asked, within_bytes)
    expected = choices(whole, within_bytes)
    assert list(choices(found, 10**15).items()) == list(expected.items())
    assert found.num_strategies == whole.num_strategies
    assert all(found.has(option.strategy) for option in whole.options)
    one, other = solve(whole, budget_bytes=within_bytes), solve(found, budget_bytes=within_bytes)
    assert (one is None) == (other is None) == (not expected)
    if one is not None and other is not None:
        assert (one.option.strategy, one.option.shape, one.recomputed, one.objective, one.bound) == (
            other.option.strategy,
            other.option.shape,
            other.recomputed,
            other.objective,
            other.bound,
        )


@EXAMPLES
@given(st.data(), workloads(), machines, engines)
def test_the_smallest_choice_is_that_of_the_whole_table(
    data: st.DataObject, workload: Workload, where: Machine, name: str
) -> None:
    asked = (workload, ENGINES[name], where, data.draw(candidates(where, name)), shapes_on(where), "auto", 10**12)
    whole, few = estimate(*asked), estimate_smallest(*asked)
    one, other = solve(whole, SMALLEST, whole.enough_bytes), try_all(few, SMALLEST, few.enough_bytes)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert (one.option.strategy, one.option.shape, one.recomputed, one.objective) == (
            other.option.strategy,
            other.option.shape,
            other.recomputed,
            other.objective,
        )


@EXAMPLES
@given(st.data(), workloads(), machines, engines)
def test_what_is_quick_to_count_is_never_more_than_the_peak(
    data: st.DataObject, workload: Workload, where: Machine, name: str
) -> None:
    engine, shape = ENGINES[name], data.draw(st.sampled_from(shapes_on(where)))
    for strategy in data.draw(candidates(where, name)):
        full = data.draw(st.tuples(*[st.booleans()] * workload.num_classes))
        assignment = tuple(replace(strategy, recompute="full" if each else "none") for each in full)
        if engine.refusal(workload, assignment, shape) is None:
            least = engine.least_memory(workload, assignment, shape)
            peak = step_memory(workload, engine.memory(workload, assignment, shape), assignment, shape)
            assert least_peak_bytes(workload, least, assignment, shape) <= peak.peak_bytes


@settings(max_examples=60, deadline=None)
@given(tables(), st.sampled_from([FASTEST, SMALLEST]))
def test_trying_all_choices_finds_what_the_solver_proves(table: CostTable, objectives: object) -> None:
    one, other = solve(table, objectives), try_all(table, objectives)  # type: ignore[arg-type]
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert (one.option, one.recomputed, one.objective, one.bound, one.status) == (
            other.option,
            other.recomputed,
            other.objective,
            other.bound,
            other.status,
        )
