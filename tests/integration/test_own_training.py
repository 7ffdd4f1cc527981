"""Examples of training in one's own loop run with an emitted folder alone, and train as plain training does."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hw_profiles.load import load
from planner.emit.emit import emit
from planner.job import Job
from planner.pipeline import estimate
from planner.plan import Plan
from tests.integration.gloo_ranks import GlooRanks
from tests.integration.own_training import (
    EXAMPLES,
    run_example,
    run_plain_accelerate,
    run_plain_trainer,
    run_trainer,
)

README = EXAMPLES.parent / "README.md"
NUM_RANKS, NUM_MICRO_BATCHES = 4, 2
LLAMA_BLOCKS = ("model.embed_tokens", *(f"model.layers.{number}" for number in range(3)), "model.norm", "lm_head")


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(NUM_RANKS) as up:
        yield up


@pytest.fixture(scope="module")
def plan() -> Plan:
    job = Job(global_batch_size=16, micro_batch_size=2, precision="fp32", engine="fsdp")
    profile = load("local-cpu", 2, 2)
    return estimate(f"{EXAMPLES}/gpt.py:small_gpt", profile, job, (2, 2, 4))


@pytest.fixture(scope="module")
def folder(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("plans") / "gpt"
    emit(plan, made)
    return str(made)


@pytest.fixture(scope="module")
def llama_folder(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same degrees for a model of transformers."""
    made = tmp_path_factory.mktemp("plans") / "llama"
    strategy = plan.strategies[0].model_copy(update={"blocks": LLAMA_BLOCKS})
    emit(plan.model_copy(update={"strategies": (strategy,)}), made)
    return str(made)


def test_a_loop_of_ones_own_goes_on_from_its_checkpoint_as_if_nothing_had_been(
    ranks: GlooRanks, folder: str, tmp_path: Path
) -> None:
    whole = ranks.run(run_example, "own_loop", folder, folder, 10, str(tmp_path / "whole"), False)
    begun = ranks.run(run_example, "own_loop", folder, folder, 6, str(tmp_path / "parts"), False)
    resumed = ranks.run(run_example, "own_loop", folder, folder, 10, str(tmp_path / "parts"), True)
    for (losses, _), (first, _), (rest, _) in zip(whole, begun, resumed, strict=True):
        assert first + rest == losses
        assert losses[-1] < losses[0] - 0.5


def test_a_loop_of_ones_own_shows_that_it_sends_what_was_predicted(
    ranks: GlooRanks, folder: str, tmp_path: Path
) -> None:
    _, shown = ranks.run(run_example, "own_loop", folder, folder, 5, str(tmp_path), False)[0]
    differences = {row[:32].strip(): row.split()[-1] for row in shown.splitlines()[1:] if row[0] != " "}
    sent = {name: difference for name, difference in differences.items() if " over " in name or " between " in name}
    # Clipping reduces the norm, 4 bytes, which is no part of a plan.
    assert sent.pop("all-reduce over 4") == "predicted"
    assert sent == dict.fromkeys(sent, "exact")
    assert len(sent) == 4


@pytest.mark.slow
def test_accelerate_deals_out_the_data_and_losses_are_those_of_its_own_training(
    ranks: GlooRanks, folder: str, tmp_path: Path
) -> None:
    plain = ranks.run(run_plain_accelerate, folder, NUM_MICRO_BATCHES)[0]
    for losses, _ in ranks.run(run_example, "accelerate_loop", folder, folder, 1, str(tmp_path)):
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(plain), rtol=1e-5, atol=0)
    assert len(plain) == 16


@pytest.mark.slow
def test_the_trainer_of_transformers_trains_evaluates_and_resumes_as_without_the_runtime(
    ranks: GlooRanks, llama_folder: str, tmp_path: Path
) -> None:
    plain = ranks.run(run_plain_trainer, llama_folder, str(tmp_path / "plain"), 8)[0]
    ranks.run(run_trainer, llama_folder, str(tmp_path / "sharded"), 5, False)
    said = ranks.run(run_trainer, llama_folder, str(tmp_path / "sharded"), 8, True)[0]
    torch.testing.assert_close(torch.tensor(said["losses"]), torch.tensor(plain["losses"]), rtol=1e-4, atol=1e-4)
    assert said["evaluated"] == pytest.approx(plain["evaluated"], rel=1e-4)
    assert len(plain["losses"]) == 8


@pytest.mark.slow
def test_the_trainer_saves_what_from_pretrained_reads(ranks: GlooRanks, llama_folder: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    evaluated = ranks.run(run_trainer, llama_folder, str(tmp_path), 5, False)[0]["evaluated"]
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokens = ((torch.arange(64) + 7 * torch.arange(256)[:, None]) % 64).split(8)
    with torch.no_grad():
        losses = [model(input_ids=batch, labels=batch).loss for batch in tokens]
    assert torch.stack(losses).mean().item() == pytest.approx(evaluated, rel=1e-4)


def test_what_the_readme_shows_stands_in_the_examples() -> None:
    section = README.read_text(encoding="utf-8").partition("## In your own training")[2].partition("\n## ")[0]
    shown = re.findall(r"```python\n# (examples/\w+\.py)\n(.*?)```", section, flags=re.DOTALL)
    assert [name for name, _ in shown] == [
        "examples/own_loop.py",
        "examples/hf_trainer.py",
        "examples/accelerate_loop.py",
    ]
    for name, block in shown:
        text = (EXAMPLES.parent / name).read_text(encoding="utf-8")
        assert any(textwrap.indent(block, " " * depth) in text for depth in (0, 4, 8)), f"{name} has no such lines"
