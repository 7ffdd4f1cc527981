"""A profile measured on a cluster of shaped links: what it finds, and how well it tells what it has not measured."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from collectives_accuracy import (
    BETWEEN_MBIT,
    INSIDE_MBIT,
    SIZES_BYTES,
    Row,
    cells,
    compared,
    profile_of,
    quantile,
    speeds,
    time_afresh,
)
from emulated_cluster import EmulatedCluster, emulated_cluster, why_not

from hw_profiles.schema import HardwareProfile

_reason = why_not()
pytestmark = pytest.mark.skipif(_reason is not None, reason=_reason or "")


def assert_levels_and_speeds(cluster: EmulatedCluster, profile: HardwareProfile, within: float) -> None:
    assert [level.size for level in profile.levels] == [cluster.ranks_per_node, len(cluster.names)]
    assert [level.name for level in profile.levels] == ["node", "cluster"]
    assert not profile.logical
    for name, was_set, found in speeds(cluster, profile):
        assert found == pytest.approx(was_set, rel=within), name
    assert profile.transport == "gloo over TCP, interface eth0"


def test_a_quick_profile_finds_the_nodes_and_about_the_speeds_of_both_levels() -> None:
    """Within a half: other tests' processes may run beside."""
    with emulated_cluster(2, 2) as cluster:
        assert_levels_and_speeds(cluster, profile_of(cluster, quick=True), 0.5)


@pytest.mark.slow
def test_racks_are_found_between_nodes_by_what_nodes_send_each_other() -> None:
    with emulated_cluster(4, 1, between_mbit=400, num_racks=2, racks_mbit=80) as cluster:
        profile = profile_of(cluster, quick=True)
    assert [(level.name, level.size) for level in profile.levels] == [("node", 1), ("rack", 2), ("cluster", 2)]
    assert "between nodes by measured pairs" in profile.sources["levels.1.size"]
    for name, was_set, found in speeds(cluster, profile)[1:]:
        assert found == pytest.approx(was_set, rel=0.1), name


@pytest.fixture(scope="module", params=[2, 4])
def measured(request: pytest.FixtureRequest) -> Iterator[tuple[EmulatedCluster, HardwareProfile, list[Row]]]:
    with emulated_cluster(request.param, 2, INSIDE_MBIT, BETWEEN_MBIT) as cluster:
        profile = profile_of(cluster)
        yield cluster, profile, compared(profile, time_afresh(cluster, profile, SIZES_BYTES))


@pytest.mark.slow
def test_a_profile_finds_the_levels_and_both_speeds(
    measured: tuple[EmulatedCluster, HardwareProfile, list[Row]],
) -> None:
    assert_levels_and_speeds(*measured[:2], 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["size", "shape"])
def test_collectives_that_were_left_out_are_told_for_every_operation_and_shape(
    measured: tuple[EmulatedCluster, HardwareProfile, list[Row]], left_out: str
) -> None:
    rows = [row for row in measured[2] if row.left_out == left_out]
    assert {row.provenance for row in rows} <= ({"interpolated", "modelled"} if left_out == "size" else {"modelled"})
    bad = []
    for cell, of_cell in cells(rows).items():
        errors = [abs(row.error) for row in of_cell]
        if statistics.median(errors) > 0.10 or quantile(errors, 0.9) > 0.25:
            bad.append((cell, f"median {statistics.median(errors):.1%}, 90th percentile {quantile(errors, 0.9):.1%}"))
    assert not bad
