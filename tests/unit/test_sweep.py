"""What a sweep says of its sizes beside each one's plan."""

from __future__ import annotations

import pytest
from rich.console import Console
from sample_plan import PLAN

from planner.plan import Infeasible, Plan, ScaledPlan
from planner.report.sweep import scaled, sweep_table


def plan(world_size: int, tokens_per_s: float) -> Plan:
    hardware = PLAN.hardware.model_copy(update={"world_size": world_size})
    predicted = PLAN.predicted.model_copy(update={"tokens_per_s": tokens_per_s})
    return PLAN.model_copy(update={"hardware": hardware, "predicted": predicted})


def nothing(world_size: int) -> Infeasible:
    return Infeasible(
        model_name="GPT",
        hardware_name="dgx",
        world_size=world_size,
        needed_bytes=0,
        available_bytes=1,
        nearest=None,
        suggestions=(),
        reason="no legal batch",
    )


# Neither fitting nor speed per rank is monotone in the number of ranks, and they are asked out of order.
ANSWERS = (plan(64, 9600.0), nothing(48), plan(16, 2400.0), nothing(8), plan(32, 4000.0))


def test_sizes_stay_in_the_order_asked_and_plans_as_they_are() -> None:
    answers = scaled(ANSWERS)
    assert [each.hardware.world_size if isinstance(each, Plan) else each.world_size for each in answers] == [
        64,
        48,
        16,
        8,
        32,
    ]
    for before, after in zip(ANSWERS, answers, strict=True):
        assert after.model_dump(exclude={"scaling"}) == before.model_dump()


def test_scaling_is_against_the_fewest_ranks_that_fit() -> None:
    of_64, _, of_16, _, of_32 = scaled(ANSWERS)
    assert isinstance(of_64, ScaledPlan) and isinstance(of_16, ScaledPlan) and isinstance(of_32, ScaledPlan)
    assert (of_64.scaling.tokens_per_s_per_rank, of_64.scaling.efficiency) == (150.0, 1.0)
    assert of_16.scaling.efficiency == 1.0
    assert of_32.scaling.efficiency == pytest.approx(125.0 / 150.0)
    assert [each.scaling.is_fewest_ranks for each in (of_64, of_16, of_32)] == [False, True, False]
    # Of 16 and 64, which train as much per rank, that with the fewest ranks.
    assert [each.scaling.is_most_per_rank for each in (of_64, of_16, of_32)] == [False, True, False]


def test_the_table_names_the_fewest_ranks_and_the_most_per_rank() -> None:
    text = page(plan(16, 2400.0), nothing(8), plan(32, 6400.0))
    assert "16 ranks are the fewest on which it fits; 32 train most per rank, 200.0 tokens/s." in text
    assert "133.3%" in text


def test_of_one_size_or_none_that_fits_nothing_is_compared() -> None:
    assert "fewest" not in page(plan(16, 2400.0))
    assert "fewest" not in page(nothing(8), nothing(16))


def page(*answers: Plan | Infeasible) -> str:
    console = Console(width=100, record=True, color_system=None)
    with console.capture() as captured:
        console.print(sweep_table(answers))
    return " ".join(captured.get().split())
