"""Batches and configurations that people's jobs were refused for, or that were rounded behind their backs.

Of the rest of the kind, other tests have:

| what | where |
|---|---|
| a global batch that does not divide, and one below the ranks | test_pipeline: test_a_batch_that_does_not_divide_names_the_nearest_ones, test_a_batch_smaller_than_the_world_names_the_smallest_legal_one |
| a batch that divides over some sizes of a sweep | test_pipeline: test_a_sweep_gives_the_reason_for_a_size_that_the_batch_does_not_divide_over |
| a bucket of 15099494.4, a key misspelt, there twice or with a blank, "auto", "3", with and without `stage3_`, cpu_offload, removed keys | test_ds_config: UNDERSTOOD and REFUSED |
"""  # noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from field_models import config_file, graph_of
from pydantic import ValidationError

from cli import answer
from hw_profiles.load import load
from hw_profiles.schema import HardwareProfile
from planner import Job, estimate, plan
from planner.errors import BatchError, InputError


def seven_ranks() -> HardwareProfile:
    """A cluster of eight that lost one."""
    return load("p4d-a100-40gb", 7, 1)


def two_ranks() -> HardwareProfile:
    return load("dgx-a100-80gb", 1, 2)


def refused(folder: Path, machine: HardwareProfile, job: Job, **config: Any) -> str:
    path = config_file(folder, {"stage": 2}, bf16={"enabled": True}, **config)
    with pytest.raises(InputError) as refusal:
        estimate(graph_of("BERT-large"), machine, job, ds_config=path)
    return str(refusal.value)


def test_a_config_of_eight_ranks_on_seven_names_the_batches_that_seven_can_share(tmp_path: Path) -> None:
    config = {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 18}
    text = refused(tmp_path, seven_ranks(), Job(global_batch_size=256), **config)
    assert "256 != 2 x 18 x 7" in text
    assert "252 or 266" in text


def test_the_batches_that_are_named_are_legal() -> None:
    for batch in (252, 266):
        answer_of_batch = plan(
            graph_of("BERT-large"), seven_ranks(), Job(global_batch_size=batch, micro_batch_size=2)
        ).job
        assert answer_of_batch.micro_batch_size * answer_of_batch.num_micro_batches * 7 == batch


def test_a_job_of_eight_ranks_on_seven_is_refused_and_never_rounded() -> None:
    with pytest.raises(BatchError, match=r"256 = 2 x M x 7 has no whole M .*use --global-batch-size 252 or 266"):
        plan(graph_of("BERT-large"), seven_ranks(), Job(global_batch_size=256, micro_batch_size=2))


def test_one_sample_for_two_ranks_is_refused_with_the_equation() -> None:
    with pytest.raises(BatchError, match=r"1 = b x M x 2 has no whole M \(remainder 1 of 2\)"):
        plan(graph_of("BERT-large"), two_ranks(), Job(global_batch_size=1))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        # DeepSpeed takes M = 10 // (4 x 2) = 1, and ends in an assertion on every rank.
        ({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4}, ("10 = 4 x M x 2", "8 or 16")),
        ({"train_batch_size": 10, "gradient_accumulation_steps": 4}, ("10 != b x 4 x 2", "8 or 16")),
        ({"gradient_accumulation_steps": 0}, ("gradient_accumulation_steps", "at least 1")),
        ({"train_micro_batch_size_per_gpu": 0}, ("train_micro_batch_size_per_gpu", "at least 1")),
        ({"train_batch_size": 0}, ("train_batch_size", "at least 1")),
        ({"train_batch_size": 12}, ("global-batch-size 12", "10")),
    ],
    ids=lambda value: " ".join(str(each) for each in value),
)
def test_a_config_whose_accumulation_is_no_whole_number_is_refused_with_its_numbers(
    config: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    text = refused(tmp_path, two_ranks(), Job(global_batch_size=10), **config)
    assert all(word in text for word in words)


@pytest.mark.parametrize("field", ["global_batch_size", "micro_batch_size"])
def test_a_batch_of_nothing_is_no_job(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        Job.model_validate({"global_batch_size": 8, field: 0})


@pytest.mark.parametrize("option", ["--global-batch-size", "--micro-batch-size"])
def test_a_batch_of_nothing_is_a_mistake_of_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"--hardware": "dgx-a100-80gb", "--global-batch-size": "8"} | {option: "0"}
    assert answer(["plan", "examples/gpt.py:gpt", *(word for pair in given.items() for word in pair)]) == 2
    assert option in capsys.readouterr().err
