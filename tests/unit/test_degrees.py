"""Which degrees exist, which nest, and the order of the search space."""

from __future__ import annotations

import pytest

from costmodels.degrees import legal_degrees, nests, strategies, why_illegal, why_not_nested
from costmodels.strategy import Strategy


@pytest.mark.parametrize(
    ("sizes", "degrees"),
    [
        ((8, 4), (1, 2, 4, 8, 16, 32)),
        ((2, 4, 6), (1, 2, 4, 8, 16, 24, 48)),
        ((3, 5), (1, 3, 15)),
        ((6,), (1, 2, 3, 6)),
        ((1,), (1,)),
    ],
)
def test_legal_degrees_fill_whole_units_of_each_level(sizes: tuple[int, ...], degrees: tuple[int, ...]) -> None:
    assert legal_degrees(sizes) == degrees


@pytest.mark.parametrize(
    "degrees",
    [(1, 1, 1), (1, 1, 32), (1, 32, 32), (32, 32, 32), (8, 8, 8), (1, 8, 32), (8, 8, 32), (8, 32, 32), (2, 8, 32)],
)
def test_published_systems_nest(degrees: tuple[int, int, int]) -> None:
    assert nests(*degrees, 32)


def test_gradients_may_be_sharded_less_than_parameters() -> None:
    assert nests(8, 1, 32, 32)


@pytest.mark.parametrize(
    ("degrees", "words"),
    [
        ((3, 5, 7), "3 does not divide 32 ranks; legal degrees are 1, 2, 4, 8, 16, 32"),
        ((0, 1, 1), "0 does not divide 32 ranks"),
        ((8, 8, 4), "param degree 8 does not divide the optim degree 4"),
        ((1, 8, 4), "grad degree 8 does not divide the optim degree 4"),
        ((64, 64, 64), "64 does not divide 32 ranks"),
    ],
)
def test_degrees_that_do_not_nest_are_refused_in_numbers(degrees: tuple[int, int, int], words: str) -> None:
    assert words in (why_not_nested(*degrees, 32) or "")
    assert not nests(*degrees, 32)


def test_degrees_of_which_neither_divides_the_other_are_refused() -> None:
    assert "neither" in (why_not_nested(2, 3, 6, 6) or "")


def test_a_degree_across_units_is_illegal_though_it_divides_the_world() -> None:
    reason = why_illegal(Strategy(4, 4, 4, 12), (4, 3)) or why_illegal(Strategy(6, 6, 6, 12), (4, 3))
    assert reason == ("param degree: 6 ranks do not fill whole units of the levels 4, 3; legal degrees are 1, 2, 4, 12")


def test_a_secondary_degree_divides_the_param_degree() -> None:
    assert why_illegal(Strategy(8, 4, 8, 8), (8,)) is None
    assert "secondary degree 3" in (why_illegal(Strategy(8, 3, 8, 8), (8,)) or "")


def test_strategies_are_all_legal_distinct_and_in_ascending_order() -> None:
    found = strategies((2, 4, 2))
    assert len(set(found)) == len(found)
    assert list(found) == sorted(found)
    assert all(why_illegal(strategy, (2, 4, 2)) is None for strategy in found)


def test_strategies_are_exactly_the_nested_ones() -> None:
    legal = (1, 2, 4)
    expected = {
        Strategy(p, s, g, o)
        for p in legal
        for s in legal
        for g in legal
        for o in legal
        if p % s == 0 and o % p == 0 and o % g == 0 and (g % p == 0 or p % g == 0)
    }
    assert set(strategies((2, 2))) == expected
    assert set(strategies((2, 2), relaxed=False)) == {
        each for each in expected if each.grad_degree >= each.param_degree
    }


@pytest.mark.parametrize("degrees", [(1, 1, 8), (4, 4, 8), (8, 8, 32)])
def test_degrees_that_amsp_chose_are_in_the_space(degrees: tuple[int, int, int]) -> None:
    """AMSP (arXiv 2311.00257v2), table IV: 128 nodes of 8 GPUs."""
    assert degrees in {strategy.degrees for strategy in strategies((8, 128), relaxed=False)}
