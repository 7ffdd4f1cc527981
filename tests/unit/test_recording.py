"""A recording beside a plan says what agrees, what does not, and what only one of them knows."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.ranks import LaunchError
from runtime.record_memory import MemoryUse
from runtime.record_traffic import RecordedTraffic
from runtime.recording import Recording

GATHER = RecordedTraffic("all_gather", 2, 4, 4096, 3)
REDUCE = RecordedTraffic("all_reduce", 1, 4, 1 << 20, 1)
RECORDING = Recording(MemoryUse(2_080_000, 1_000_000, None), (GATHER, REDUCE), 0.0125, 4)


def plan(peak_bytes: int = 2_000_000, traffic: tuple[RecordedTraffic, ...] = (GATHER, REDUCE)) -> dict[str, Any]:
    rows = [
        {"operation": row.operation, "degree_from": row.degree_from, "degree_to": row.degree_to}
        | {"bytes": row.bytes, "count": row.count, "seconds": 1.0}
        for row in traffic
    ]
    memory = {"peak_bytes": peak_bytes, "at_rest_bytes": 1_000_000, "init_peak_bytes": 500_000}
    return {"hardware": {"world_size": 4}, "predicted": {"step_s": 0.01, "memory": memory, "traffic": rows}}


def test_what_agrees_is_called_exact() -> None:
    comparison = RECORDING.compare(plan())
    assert comparison.traffic_is_exact
    assert comparison.differing() == ()
    assert str(comparison).splitlines() == [
        "                             predicted    measured    difference",
        "step time                      10.0 ms     12.5 ms        +25.0%",
        "peak memory                   1.91 MiB    1.98 MiB         +4.0%",
        "memory at rest              976.56 KiB  976.56 KiB         exact",
        "peak while building         488.28 KiB           -  not measured",
        "all-gather between 2 and 4    4.00 KiB    4.00 KiB         exact",
        "  messages                           3           3         exact",
        "all-reduce over 4             1.00 MiB    1.00 MiB         exact",
        "  messages                           1           1         exact",
    ]


def test_memory_differs_beyond_the_tolerance_and_traffic_by_a_byte() -> None:
    more = RecordedTraffic("all_gather", 2, 4, 4097, 3)
    comparison = RECORDING.compare(plan(peak_bytes=1_900_000, traffic=(more, REDUCE)))
    assert not comparison.traffic_is_exact
    assert [row.name for row in comparison.differing()] == ["peak memory", "all-gather between 2 and 4"]
    assert [row.name for row in comparison.differing(tolerance=0.2)] == ["all-gather between 2 and 4"]


def test_messages_of_one_side_alone_are_named() -> None:
    comparison = RECORDING.compare(plan(traffic=(REDUCE, RecordedTraffic("broadcast", 1, 4, 8, 1))))
    named = {row.name: row.difference_text for row in comparison.rows}
    assert named["all-gather between 2 and 4"] == "not predicted"
    assert named["broadcast over 4"] == "not measured"
    assert not comparison.traffic_is_exact


def test_a_plan_in_a_folder_is_the_same_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan()))
    assert RECORDING.compare(tmp_path) == RECORDING.compare(str(tmp_path / "plan.json")) == RECORDING.compare(plan())


def test_the_plan_of_other_ranks_is_refused_with_both_numbers() -> None:
    other = plan()
    other["hardware"]["world_size"] = 8
    with pytest.raises(LaunchError, match="for 8 ranks, and 4 were recorded"):
        RECORDING.compare(other)
    with pytest.raises(LaunchError, match="no plan"):
        RECORDING.compare({"hardware": {}})


def test_the_document_has_the_keys_of_a_run() -> None:
    document = json.loads(RECORDING.to_json())
    assert document["memory"] == {"peak_bytes": 2_080_000, "at_rest_bytes": 1_000_000, "init_peak_bytes": None}
    assert document["traffic"][0] == {
        "operation": "all_gather",
        "degree_from": 2,
        "degree_to": 4,
        "bytes": 4096,
        "count": 3,
    }
    assert document["step_s"] == 0.0125
