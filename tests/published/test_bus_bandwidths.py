"""The shipped machines give back the bus bandwidths that their sources quote, by the collective model alone.

Nothing here is measured by a profile's curves: each machine has one efficiency per level and operation, and these rows
are what they were taken from, and what else was published of the machine.
"""

from __future__ import annotations

import statistics

import pytest
from bus_bandwidths import BY_SIZE, SWEPT, TABLE, BusBandwidth, rows, sweep

from hw_profiles.load import shipped_names

UNPUBLISHED = ("frontier-mi250x", "hgx-a100-80gb-roce4", "l4-pcie-8", "local-cpu", "rtx4090-pcie-8")
"""Machines of whose large messages no bus bandwidth was found in numbers; their sources say what stands in."""


@pytest.mark.parametrize(
    "row", rows(), ids=lambda row: f"{row.machine}-{row.num_nodes}-{row.operation}-{row.message_bytes}"
)
def test_published_bus_bandwidths_come_out_of_the_shipped_machines(row: BusBandwidth) -> None:
    assert row.predicted == pytest.approx(row.published, rel=float(TABLE["tolerance"]["of_large_messages"]))


def test_every_shipped_machine_is_in_the_table_or_named_as_unpublished() -> None:
    assert sorted({row.machine for row in rows()} | set(UNPUBLISHED)) == list(shipped_names())


@pytest.mark.parametrize("name", SWEPT)
def test_every_size_of_an_all_reduce_comes_out_of_one_startup_and_one_efficiency(name: str) -> None:
    errors = [abs(row.predicted / row.published - 1) for row in sweep(name)]
    assert len(errors) == 20
    assert max(errors) <= float(BY_SIZE["tolerance"][name])
    assert statistics.median(errors) <= float(BY_SIZE["tolerance"]["median"])
