"""Optimizer states in host memory, on real DeepSpeed: the same losses, the messages and memory that were predicted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from deepspeed_cases import launch
from emitted import emitted, losses
from test_measured_memory import SMALL
from test_measured_memory import Case as MemoryCase
from test_measured_memory import check as check_memory
from test_traffic import source_of, workload_of

from costmodels.deepspeed.engine import DEEPSPEED
from costmodels.strategy import StepShape, Strategy
from planner.choose.ds_config import ds_config
from planner.run.run import run

HERE = Path(__file__).parent
N = 4
STAGES: dict[str, Strategy] = {
    "stage 1": Strategy(1, 1, 1, N, offload="optimizer"),
    "stage 2": Strategy(1, 1, N, N, offload="optimizer"),
    "stage 3": Strategy(N, N, N, N, offload="optimizer"),
    "stage 3, parameters too": Strategy(N, N, N, N, offload="all"),
    "stage 3, parameters too, kept": Strategy(N, 1, N, N, offload="all"),
}


@pytest.mark.parametrize("degrees", [(1, 2, 2), (2, 2, 2), pytest.param((1, 1, 2), marks=pytest.mark.slow)], ids=str)
def test_offload_trains_with_the_losses_of_states_on_the_device_and_sends_what_its_plan_says(
    tmp_path: Path, degrees: tuple[int, int, int]
) -> None:
    resident = emitted(tmp_path / "resident", degrees)
    offloaded = emitted(tmp_path / "offloaded", degrees, offload="optimizer")
    section = json.loads((offloaded / "ds_config.json").read_text())["zero_optimization"]
    assert section["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    expected = losses(resident, 2)
    assert abs(expected[0] - expected[-1]) > 0.01 * expected[0], "training must show in the loss"
    report = run(offloaded, steps=5)
    assert [step.loss for step in report.steps] == pytest.approx(expected, rel=1e-5)
    assert report.measured.traffic == report.predicted.traffic
    assert report.measured.memory.at_rest_bytes == pytest.approx(report.predicted.memory.at_rest_bytes, rel=0.01)


@pytest.mark.slow
def test_every_offload_sends_the_messages_that_were_predicted(tmp_path: Path) -> None:
    workload = workload_of("gpt", "bf16")
    shape = StepShape(N, 2, 3, "bf16", "adamw", "cpu")
    source = source_of("gpt")
    asked = [(strategy,) * workload.num_classes for strategy in STAGES.values()]
    cases = [
        {"spec": source.spec, "kind": source.kind, "config": ds_config(workload, each, shape), "recompute": []}
        for each in asked
    ]
    ranks = launch(HERE / "traffic_worker.py", cases, tmp_path, N)
    for recorded in ranks:
        for name, assignment, messages in zip(STAGES, asked, recorded, strict=True):
            predicted: Counter[tuple[str, int, int, int]] = Counter()
            for each in DEEPSPEED.traffic(workload, assignment, shape):
                predicted[each.operation, each.degree_from, each.degree_to, each.message_bytes] += each.count
            assert Counter(tuple(message) for message in messages) == predicted, name


@pytest.mark.slow
def test_predicted_memory_with_offload_is_what_deepspeed_takes(tmp_path: Path) -> None:
    """On CPUs the host's part is in the figures, so that device and host are checked together."""
    arguments = tuple(SMALL.items())
    cases = [MemoryCase(arguments, strategy, num_micro_batches=2) for strategy in STAGES.values()]
    check_memory(cases, tmp_path)
