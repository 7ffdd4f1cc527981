"""Levels fitted to curves of a known machine are that machine's."""

from __future__ import annotations

import random

import pytest

from costmodels.collectives import modelled_time
from costmodels.network import Network, NetworkLevel
from hw_profiles.fit.fit_levels import Fitted, fit_levels
from hw_profiles.run_by import GLOO
from hw_profiles.schema import Algorithm, Curve, CurvePoint, Level, Operation

NCCL: dict[Operation, tuple[Algorithm, ...]] = {"all_gather": ("ring",), "all_reduce": ("ring", "tree")}
KINDS = ((1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (4, 8))
TRUTH = Network(
    levels=(
        NetworkLevel(2, 100e6, 1e-3, (("all_gather", 0.5),), (("all_reduce", 2.0),)),
        NetworkLevel(4, 25e6, 2e-3, (("all_to_all", 0.75),)),
    ),
    algorithms=tuple(GLOO.items()),
    calls_s=tuple((operation, 5e-4) for operation in GLOO),
)
START = (
    Level(name="node", size=2, unit_bytes_per_s=1e9, alpha_s=1e-4),
    Level(name="cluster", size=4, unit_bytes_per_s=1e9, alpha_s=1e-4),
)


def curve(
    operation: Operation, kind: tuple[int, int], truth: Network = TRUTH, noise: random.Random | None = None
) -> Curve:
    points = []
    for power in range(10, 25, 2):
        seconds = modelled_time(operation, *kind, 1 << power, truth).seconds
        points.append(CurvePoint(bytes=1 << power, seconds=seconds * (noise.uniform(0.9, 1.1) if noise else 1.0)))
    return Curve(operation=operation, degree_from=kind[0], degree_to=kind[1], points=tuple(points))


def network(fitted: Fitted, algorithms: dict[Operation, tuple[Algorithm, ...]]) -> Network:
    return Network(
        tuple(
            NetworkLevel(
                level.size,
                level.unit_bytes_per_s,
                level.alpha_s,
                tuple(level.efficiency.items()),
                tuple(level.startup.items()),
            )
            for level in fitted.levels
        ),
        algorithms=tuple(algorithms.items()),
        calls_s=tuple(fitted.calls_s.items()),
        startups_hidden=fitted.startups_hidden,
    )


@pytest.mark.parametrize("operation", GLOO)
def test_all_curves_together_give_the_machine_back(operation: Operation) -> None:
    fitted = fit_levels(START, [curve(each, kind) for each in GLOO for kind in KINDS], GLOO)
    assert fitted.told == (True, True)
    assert fitted.median_error < 0.01
    assert fitted.startups_hidden == 0
    found = network(fitted, GLOO)
    for kind in KINDS:
        for size_bytes in (1 << 12, 1 << 19, 1 << 24):
            truth_s = modelled_time(operation, *kind, size_bytes, TRUTH).seconds
            assert modelled_time(operation, *kind, size_bytes, found).seconds == pytest.approx(truth_s, rel=0.03)


def test_a_levels_bandwidth_is_the_best_that_an_operation_reached() -> None:
    node, cluster = fit_levels(START, [curve(each, kind) for each in GLOO for kind in KINDS], GLOO).levels
    assert node.unit_bytes_per_s == pytest.approx(100e6, rel=0.02)
    assert cluster.unit_bytes_per_s == pytest.approx(25e6, rel=0.02)
    assert node.efficiency["all_gather"] == pytest.approx(0.5, rel=0.02)
    assert cluster.efficiency["all_to_all"] == pytest.approx(0.75, rel=0.02)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != (1, 2)])
def test_groups_that_were_left_out_are_modelled_by_the_others(kind: tuple[int, int]) -> None:
    noise = random.Random(7)
    curves = [curve(each, other, noise=noise) for each in GLOO for other in KINDS if other != kind]
    found = network(fit_levels(START, curves, GLOO), GLOO)
    for operation in GLOO:
        for size_bytes in (1 << 12, 1 << 18, 1 << 22):
            truth_s = modelled_time(operation, *kind, size_bytes, TRUTH).seconds
            assert modelled_time(operation, *kind, size_bytes, found).seconds == pytest.approx(truth_s, rel=0.15)


def test_start_ups_that_hide_behind_the_transfer_are_found_to() -> None:
    hiding = Network(TRUTH.levels, algorithms=TRUTH.algorithms, calls_s=TRUTH.calls_s, startups_hidden=1.0)
    fitted = fit_levels(START, [curve(each, kind, hiding) for each in GLOO for kind in KINDS], GLOO)
    assert fitted.startups_hidden == 1.0
    assert fitted.median_error < 0.01


def test_of_two_algorithms_each_explains_its_sizes() -> None:
    truth = Network((NetworkLevel(8, 300e9, 3e-6), NetworkLevel(16, 50e9, 10e-6)), algorithms=tuple(NCCL.items()))
    start = (
        Level(name="node", size=8, unit_bytes_per_s=200e9, alpha_s=1e-6),
        Level(name="cluster", size=16, unit_bytes_per_s=100e9, alpha_s=1e-6),
    )
    kinds = ((1, 8), (1, 128), (8, 128), (1, 32))
    fitted = fit_levels(start, [curve(each, kind, truth) for each in NCCL for kind in kinds], NCCL)
    assert fitted.median_error < 0.02
    assert fitted.levels[1].unit_bytes_per_s == pytest.approx(50e9, rel=0.03)


def test_a_level_that_no_curve_crosses_keeps_its_numbers() -> None:
    fitted = fit_levels(START, [curve("all_gather", (1, 2))], GLOO)
    assert fitted.told == (True, False)
    assert fitted.levels[1] == START[1]
    assert fit_levels(START, [], GLOO).levels == START


def test_an_operation_says_nothing_of_links_that_never_bound_it() -> None:
    # Over all 8 ranks the node's links are four times as fast as the cluster's: they could be any faster.
    node = fit_levels(START, [curve("all_gather", (1, 8))], GLOO).levels[0]
    assert node.efficiency == {}
    assert node.unit_bytes_per_s == START[0].unit_bytes_per_s


def test_one_wild_point_moves_the_bandwidth_by_little() -> None:
    own = curve("broadcast", (4, 8))
    wild = own.points[-3].model_copy(update={"seconds": own.points[-3].seconds * 5})
    points = (*own.points[:-3], wild, *own.points[-2:])
    fitted = fit_levels(START, [own.model_copy(update={"points": points})], GLOO)
    assert fitted.levels[1].unit_bytes_per_s == pytest.approx(25e6, rel=0.05)


def test_curves_of_large_messages_only_leave_the_start_up_where_it_was() -> None:
    point = CurvePoint(bytes=1 << 30, seconds=10e-3)
    start = (
        Level(name="node", size=8, unit_bytes_per_s=450e9, alpha_s=4e-6),
        Level(name="cluster", size=2, unit_bytes_per_s=100e9, alpha_s=9e-6),
    )
    fitted = fit_levels(start, [Curve(operation="all_reduce", degree_from=1, degree_to=16, points=(point,))], NCCL)
    assert [level.alpha_s for level in fitted.levels] == pytest.approx([4e-6, 9e-6], rel=0.2)
