"""A short form of `benchmarks/accuracy_and_regret.py`: what is promised of bytes, memory, order and choice holds.

On links this slow, messages take most of a step: what else the machine does moves times by much less than a factor of
two, which is what predictions have to differ by for their order to be judged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from accuracy_figures import Row, has_exact_bytes, measured_s, memory_error, predicted_s
from emulated_cluster import emulated_cluster, why_not
from strategy_space import candidates

from hw_profiles.load import load
from hw_profiles.schema import HardwareProfile, Level
from planner.job import Job
from planner.model_graph import ModelSource
from planner.trace import trace

ROOT = Path(__file__).parents[2]
MODEL = {"width": "128", "depth": "4", "heads": "4", "vocab": "4096"}
LARGEST_MESSAGE_BYTES = 4 * 4096 * 128
"""The embedding, or the head."""
INSIDE_MBIT, BETWEEN_MBIT = 1000, 150
RUN = (
    "plan",
    "deepspeed 4,4,4 s=2",
    "deepspeed default stage 3",
    "fsdp 1,1,2",
    "fsdp 2,2,2",
    "fsdp 4,4,4",
)
_reason = why_not()
pytestmark = pytest.mark.skipif(_reason is not None, reason=_reason or "")


def cluster_profile() -> HardwareProfile:
    """This machine's ranks, and the links as they are set: what is measured on busy cores differs from run to run."""
    profile = load("local-cpu", 2, 2)
    rates = [mbit * 125_000.0 for mbit in (INSIDE_MBIT / 2, BETWEEN_MBIT)]
    levels = tuple(
        Level(name=name, size=2, unit_bytes_per_s=rate, alpha_s=5e-4)
        for name, rate in zip(("node", "cluster"), rates, strict=True)
    )
    device = profile.known_device.model_copy(update={"overlap": 1.0})
    sources = {
        **profile.sources,
        "levels": "as the links are set",
        "device.overlap": "links carry messages by themselves",
    }
    return profile.model_copy(update={"levels": levels, "curves": (), "device": device, "sources": sources})


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Row]]:
    folder = tmp_path_factory.mktemp("regret")
    source = ModelSource(spec=f"{ROOT / 'examples' / 'gpt.py'}:gpt", kind="file", arguments=MODEL)
    graph = trace(source, precision="fp32", device="cpu", sequence_length=32)
    job = Job(
        global_batch_size=4, micro_batch_size=1, sequence_length=32, precision="fp32", recompute="none", offload="none"
    )
    run = [each for each in candidates(graph, cluster_profile(), job, folder, RUN) if each.name in RUN]
    listed = folder / "folders.json"
    listed.write_text(json.dumps([str(each.folder) for each in run]))
    with emulated_cluster(2, 2, INSIDE_MBIT, BETWEEN_MBIT) as cluster:
        cluster.run([str(ROOT / "benchmarks" / "run_strategies.py"), str(listed), "--steps", "5"], timeout_s=300)
    reports = {each.name: json.loads((each.folder / "measured.json").read_text()) for each in run}
    yield {each.name: {"predicted": each.predicted, **reports[each.name]} for each in run}


def test_messages_are_exactly_those_that_were_predicted(rows: dict[str, Row]) -> None:
    assert [name for name, row in rows.items() if not has_exact_bytes(row)] == []


def test_memory_is_what_was_predicted(rows: dict[str, Row]) -> None:
    """A peak may have one more message than was predicted: a thread of gloo gives it up late where links are slow."""
    at_rest = {name: memory_error(row, "at_rest_bytes") for name, row in rows.items()}
    assert {name: error for name, error in at_rest.items() if abs(error) > 0.01} == {}
    late = {name: peak_bytes(row, "measured") - peak_bytes(row, "predicted") for name, row in rows.items()}
    assert {name: size for name, size in late.items() if size > 1.02 * LARGEST_MESSAGE_BYTES} == {}
    assert {
        name: memory_error(row, "peak_bytes") for name, row in rows.items() if memory_error(row, "peak_bytes") > 0.05
    } == {}


def peak_bytes(row: Row, which: str) -> int:
    return int(row[which]["memory"]["peak_bytes"])


def test_what_is_predicted_to_take_twice_as_long_takes_longer(rows: dict[str, Row]) -> None:
    judged = [
        (one, other) for one, other in permutations(rows, 2) if predicted_s(rows[one]) >= 2 * predicted_s(rows[other])
    ]
    assert len(judged) >= 3
    assert [pair for pair in judged if measured_s(rows[pair[0]]) <= measured_s(rows[pair[1]])] == []


def test_the_plan_is_about_the_fastest_and_beats_default_zero_3(rows: dict[str, Row]) -> None:
    chosen = measured_s(rows["plan"])
    assert chosen <= 1.25 * min(map(measured_s, rows.values()))
    assert chosen <= measured_s(rows["deepspeed default stage 3"]) / 1.5
