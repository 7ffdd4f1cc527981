"""One recorder says what a step costs, around whichever engine runs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.gloo_ranks import GlooRanks
from tests.integration.recorded_loops import alone, ddp, deepspeed_engine, fsdp2, leave_in_flight, model, ours

FP32_BYTES = 4
NUM_PARAMS = sum(parameter.numel() for parameter in model().parameters())


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(4) as up:
        yield up


def test_ddp_is_seen_to_reduce_each_gradient_once_a_step(ranks: GlooRanks) -> None:
    said = ranks.run(ddp, 3)[0]
    assert list(said["traffic"]) == [("all_reduce", 1, 4)]
    assert said["traffic"]["all_reduce", 1, 4][0] == FP32_BYTES * NUM_PARAMS


def test_fully_shard_is_seen_to_gather_twice_and_reduce_once_a_micro_batch(ranks: GlooRanks) -> None:
    said = ranks.run(fsdp2, 3)[0]
    full_bytes = 3 * FP32_BYTES * NUM_PARAMS
    assert said["traffic"] == {("all_gather", 1, 4): (2 * full_bytes, 36), ("reduce_scatter", 1, 4): (full_bytes, 18)}


def test_the_runtime_is_seen_to_send_what_its_degrees_ask_for(ranks: GlooRanks) -> None:
    said = ranks.run(ours, 3)[0]
    full_bytes = FP32_BYTES * NUM_PARAMS
    assert said["traffic"] == {
        ("all_gather", 1, 2): (6 * full_bytes, 36),
        ("all_gather", 2, 4): (full_bytes // 2, 6),
        ("reduce_scatter", 1, 2): (3 * full_bytes, 18),
        ("reduce_scatter", 2, 4): (full_bytes // 2, 6),
    }


def test_deepspeed_is_seen_to_reduce_and_gather_once_a_step(ranks: GlooRanks) -> None:
    said = ranks.run(deepspeed_engine, 2)[0]
    assert {operation for operation, *_ in said["traffic"]} == {"all_reduce", "all_gather"}
    reduced = sum(size for (operation, *_), (size, _) in said["traffic"].items() if operation == "all_reduce")
    # Beside the gradients: the norm and the overflow flag, of a few bytes.
    assert FP32_BYTES * NUM_PARAMS <= reduced < FP32_BYTES * NUM_PARAMS + 100


def test_memory_at_rest_is_parameters_and_moments(ranks: GlooRanks) -> None:
    said = ranks.run(alone, 1)[0]
    states = 3 * FP32_BYTES * NUM_PARAMS
    assert said["traffic"] == {}
    # Beside them: counts of steps, one for each parameter, and what a loop's variables hold.
    assert states <= said["memory"].at_rest_bytes < states + 2000
    assert said["memory"].peak_bytes > states + FP32_BYTES * NUM_PARAMS
    assert said["memory"].init_peak_bytes is not None
    assert FP32_BYTES * NUM_PARAMS <= said["memory"].init_peak_bytes < states


def test_steps_beyond_the_recorded_ones_are_timed_and_all_figures_are_shown(ranks: GlooRanks) -> None:
    for said in ranks.run(ours, 1):
        assert said["step_s"] > 0
        lines = said["text"].splitlines()
        assert [line.split("  ")[0] for line in lines[1:5]] == [
            "step time",
            "peak memory",
            "memory at rest",
            "peak while building",
        ]
        assert any(line.startswith("all-gather between 2 and 4") for line in lines)


def test_memory_is_read_when_what_is_in_flight_has_come(ranks: GlooRanks) -> None:
    """Else torch's profiler is read while a thread of gloo writes to it, and now and then the process ends."""
    own_bytes = 16 * 2**20
    for has_come, now_bytes in ranks.run(leave_in_flight, own_bytes // FP32_BYTES):
        assert has_come
        # The shard and the whole; not what gloo copies them to meanwhile.
        assert 5 * own_bytes <= now_bytes < 5 * own_bytes + 2000
