"""Plans that somebody wrote or changed by hand: what cannot run is refused with its numbers."""

from __future__ import annotations

import pytest

from costmodels.degrees import strategies
from runtime.fsdp.check_plan import check_plan
from runtime.fsdp.strategies import BlockStrategy, ShardingPlan
from runtime.ranks import LaunchError


def plan_of(*kinds: BlockStrategy, num_micro_batches: int = 1) -> ShardingPlan:
    return ShardingPlan(kinds, 8, 4, num_micro_batches, "fp32", (2, 2, 2))


def test_every_point_of_the_search_space_can_run() -> None:
    for each in strategies((2, 2, 2)):
        check_plan(plan_of(BlockStrategy(("a",), each.param_degree, each.secondary_degree, *each.degrees[1:])))


@pytest.mark.parametrize(
    ("degrees", "complaint"),
    [
        ((2, 2, 3, 4), "grad degree 3 does not divide the optim degree 4"),
        ((1, 1, 1, 3), "optim degree 3 does not divide 8 ranks"),
        ((4, 3, 4, 4), "secondary degree 3 does not divide"),
        ((8, 8, 1, 4), "param degree 8 does not divide the optim degree 4"),
        ((0, 1, 1, 1), "param degree 0 is less than 1"),
    ],
    ids=str,
)
def test_degrees_that_do_not_nest_are_refused(degrees: tuple[int, int, int, int], complaint: str) -> None:
    with pytest.raises(LaunchError, match=f"the strategy of a and 1 more cannot run: {complaint}"):
        check_plan(plan_of(BlockStrategy(("a", "b"), *degrees)))


def test_a_block_has_one_strategy_and_a_step_a_micro_batch() -> None:
    alike = BlockStrategy(("a",), 1, 1, 1, 1)
    with pytest.raises(LaunchError, match="two strategies for the block 'a'"):
        check_plan(plan_of(alike, alike))
    with pytest.raises(LaunchError, match="a step of 0 micro-batches"):
        check_plan(plan_of(alike, num_micro_batches=0))
