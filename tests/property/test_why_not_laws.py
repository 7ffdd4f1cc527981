"""Every point of a machine's search space has an answer to why it lost, and its numbers are those of `estimate`."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
from transformer_graph import SMALL, transformer_graph

from costmodels.degrees import strategies, why_illegal
from costmodels.strategy import Strategy
from hw_profiles.load import load
from planner import Job, estimate
from planner.errors import InputError
from planner.explain.explanation import Comparison
from planner.pipeline import plan, why_not
from planner.plan import Plan

GRAPH = transformer_graph(SMALL)
PROFILE = load("frontier-mi250x", 2)
SIZES = tuple(level.size for level in PROFILE.levels)
BUDGET_BYTES = 90 * 1024**2
"""Some points fit and some do not."""
JOB = Job(global_batch_size=32, memory_budget_bytes=BUDGET_BYTES, engine="deepspeed")
ANY = JOB.model_copy(update={"engine": "auto"})
POINTS = strategies(SIZES)


@cache
def chosen() -> Plan:
    return plan(GRAPH, PROFILE, JOB)


@cache
def answer(point: Strategy) -> Comparison:
    return why_not(chosen(), GRAPH, PROFILE, ANY, point.degrees, point.secondary_degree)


def test_the_machine_has_three_levels_and_points_of_every_kind_of_reason():
    assert len(SIZES) == 3
    assert {answer(point).reason for point in POINTS} >= {"memory", "engine", "time", "same"}


def test_every_point_is_answered_with_the_numbers_of_estimate():
    for point in POINTS:
        found, told = answer(point), estimate(GRAPH, PROFILE, ANY, point.degrees, point.secondary_degree)
        predicted, other = told.predicted, found.other
        assert (other.step_s, other.peak_bytes, other.engine) == (
            predicted.step_s,
            predicted.memory.peak_bytes,
            told.engine,
        )
        assert (other.micro_batch_size, other.strategies) == (told.job.micro_batch_size, told.strategies)
        sent = {(row.operation, row.degree_from, row.degree_to): row for row in predicted.traffic}
        for row in found.traffic:
            its = sent.pop((row.operation, row.degree_from, row.degree_to), None)
            assert (row.other is None) == (its is None)
            if row.other is not None and its is not None:
                assert row.other.model_dump() == its.model_dump(include=set(row.other.model_dump()))
        assert not sent


def test_the_parts_of_time_and_memory_sum_to_both_totals():
    for point in POINTS:
        for rows, total in ((answer(point).time, "step"), (answer(point).memory, "peak")):
            place = [row.name for row in rows].index(total)
            for side in ("chosen", "other"):
                parts = sum(getattr(row, side) for row in rows[:place])
                assert parts == pytest.approx(getattr(rows[place], side), rel=1e-9)


def test_the_reason_follows_from_the_figures():
    for point in POINTS:
        found = answer(point)
        assert (found.reason == "memory") == (not found.other.fits)
        assert found.other.fits == (found.other.peak_bytes <= BUDGET_BYTES)
        if found.reason == "engine":
            assert found.refusal is not None
        if found.reason == "time":
            assert found.other.step_s > found.chosen.step_s
        # The plan was proved over this engine's points, so that none of them is faster.
        assert found.reason != "faster"


def test_the_best_micro_batch_is_the_fastest_that_fits_or_the_smallest():
    for point in POINTS:
        found = answer(point)
        own = next(row for row in found.micro_batches if row.micro_batch_size == found.other.micro_batch_size)
        assert (own.step_s, own.peak_bytes) == (found.other.step_s, found.other.peak_bytes)
        fitting = [row.step_s for row in found.micro_batches if row.fits]
        if fitting:
            assert own.step_s == min(fitting)
        else:
            assert own.peak_bytes == min(row.peak_bytes for row in found.micro_batches)


def test_what_does_not_fit_is_told_a_point_that_does():
    for point in POINTS:
        found = answer(point)
        assert bool(found.would_fit) == (found.reason == "memory")
        if found.would_fit and found.would_fit[0][0].isdigit():
            degrees = tuple(int(number) for number in found.would_fit[0].partition(":")[0].split(" ")[0].split(","))
            assert any(
                estimate(GRAPH, PROFILE, ANY, degrees, each).predicted.memory.peak_bytes <= BUDGET_BYTES
                for each in {degrees[0], 1, point.secondary_degree}
                if degrees[0] % each == 0
            )


def test_degrees_that_are_no_point_are_refused_with_the_nearest_that_are():
    numbers = (1, 2, 3, 8, 16, 32)
    for p, g, o in itertools.product(numbers, repeat=3):
        asked = Strategy(p, p, g, o)
        if why_illegal(asked, SIZES) is None:
            continue
        with pytest.raises(InputError, match="The nearest points are ") as caught:
            why_not(chosen(), GRAPH, PROFILE, ANY, (p, g, o))
        named = str(caught.value).rpartition("nearest points are ")[2].replace(" or ", "; ").split("; ")
        for text in named:
            param, grad, optim = (int(number) for number in text.split(","))
            assert why_illegal(Strategy(param, param, grad, optim), SIZES) is None
