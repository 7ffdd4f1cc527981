"""A checkpoint of one plan goes on under any other, on other numbers of ranks, and in DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import checkpoint_training as training
import pytest
import torch
from gloo_ranks import GlooRanks

SAVED_UNDER = (1, 1, 2, 8)
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 2e-2}
"""Relative, of losses: other numbers of ranks add in another order."""

Saved = tuple[Path, list[float]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("checkpoints")
    with GlooRanks(8) as ranks:
        return folder, ranks.run(training.save_after_5, str(folder), SAVED_UNDER, "fp32")[0]


@pytest.fixture(scope="module")
def pair() -> Iterator[GlooRanks]:
    with GlooRanks(2) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def saved_plain(pair: GlooRanks, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("plain")
    return folder, pair.run(training.save_plain_after_5, str(folder), (1, 1, 2, 2), "fp32")[0]


def assert_same_tensors(one: Path, other: Path) -> None:
    first, second = training.tensors_of(one), training.tensors_of(other)
    assert sorted(first) == sorted(second)
    assert [key for key in sorted(first) if not torch.equal(first[key], second[key])] == []


@pytest.mark.parametrize(
    ("num_ranks", "degrees", "num_micro_batches"),
    [(4, (4, 4, 4, 4), 1), (6, (1, 1, 1, 6), 2), pytest.param(6, (6, 2, 3, 6), 1, marks=pytest.mark.slow)],
)
def test_training_goes_on_on_other_numbers_of_ranks_as_if_nothing_had_been(
    saved: Saved, num_ranks: int, degrees: training.Degrees, num_micro_batches: int, tmp_path: Path
) -> None:
    folder, losses = saved
    with GlooRanks(num_ranks) as ranks:
        found = ranks.run(training.go_on, str(folder), degrees, "fp32", num_micro_batches)
        ranks.run(training.save_again, str(folder), degrees, "fp32", str(tmp_path))
    assert found[0] == pytest.approx(losses, rel=TOLERANCE["fp32"])
    assert_same_tensors(folder, tmp_path)


@pytest.mark.slow
def test_every_plan_gives_back_each_bit(saved: Saved, tmp_path: Path) -> None:
    nested = [(p, g, o) for p in (1, 2, 4, 8) for g in (1, 2, 4, 8) for o in (1, 2, 4, 8) if max(p, g) <= o]
    with GlooRanks(8) as ranks:
        for p, g, o in nested:
            into = tmp_path / f"{p}-{g}-{o}"
            ranks.run(training.save_again, str(saved[0]), (p, p, g, o), "fp32", str(into))
            assert_same_tensors(saved[0], into)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_masters_and_moments_survive_in_low_precision(precision: str, tmp_path: Path) -> None:
    with GlooRanks(4) as ranks:
        losses = ranks.run(training.save_after_5, str(tmp_path / "a"), (1, 1, 2, 4), precision)[0]
        for degrees in ((4, 4, 4, 4), (2, 1, 2, 4), (2, 2, 1, 2)):
            found = ranks.run(training.go_on, str(tmp_path / "a"), degrees, precision)[0]
            assert found == pytest.approx(losses, rel=TOLERANCE[precision])
            into = tmp_path / str(degrees)
            ranks.run(training.save_again, str(tmp_path / "a"), degrees, precision, str(into))
            assert_same_tensors(tmp_path / "a", into)


@pytest.mark.slow
def test_a_checkpoint_in_bf16_goes_on_in_fp32(tmp_path: Path) -> None:
    with GlooRanks(2) as ranks:
        losses = ranks.run(training.save_plain_after_5, str(tmp_path), (1, 1, 2, 2), "bf16")[0]
        found = ranks.run(training.go_on_plain, str(tmp_path), (2, 2, 2, 2), "fp32")[0]
    assert found == pytest.approx(losses, rel=TOLERANCE["bf16"])


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_deepspeed_goes_on_where_the_runtime_stopped(
    pair: GlooRanks, saved_plain: Saved, stage: int, tmp_path: Path
) -> None:
    folder, losses = saved_plain
    found = pair.run(training.go_on_in_engine, str(folder), stage, "fp32")[0]
    assert found == pytest.approx(losses, rel=TOLERANCE["fp32"])
    pair.run(training.save_engine_again, str(folder), stage, "fp32", str(tmp_path))
    assert_same_tensors(folder, tmp_path)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_runtime_goes_on_where_deepspeed_stopped(pair: GlooRanks, stage: int, tmp_path: Path) -> None:
    losses = pair.run(training.save_engine_after_5, str(tmp_path), stage, "fp32")[0]
    found = pair.run(training.go_on_plain, str(tmp_path), (1, 1, 2, 2), "fp32")[0]
    assert found == pytest.approx(losses, rel=TOLERANCE["fp32"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "precision", "zero"),
    [
        (0, "bf16", {}),
        (1, "bf16", {}),
        (2, "bf16", {}),
        (3, "bf16", {}),
        (3, "fp32", {"stage3_param_persistence_threshold": 0}),
        (3, "fp32", {"zero_hpz_partition_size": 2}),
        (3, "fp32", {"sub_group_size": 500}),
        (2, "fp32", {"round_robin_gradients": True}),
        (2, "bf16", {"offload_optimizer": {"device": "cpu"}}),
        (3, "fp32", {"offload_optimizer": {"device": "cpu"}}),
    ],
)
def test_deepspeed_goes_on_in_other_settings(
    stage: int, precision: str, zero: dict[str, object], tmp_path: Path
) -> None:
    with GlooRanks(8) as ranks:
        losses = ranks.run(training.save_plain_after_5, str(tmp_path), SAVED_UNDER, precision)[0]
    with GlooRanks(4) as ranks:
        found = ranks.run(training.go_on_in_engine, str(tmp_path), stage, precision, zero)[0]
    assert found == pytest.approx(losses, rel=TOLERANCE[precision])
