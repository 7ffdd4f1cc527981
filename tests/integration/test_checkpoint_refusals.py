"""What cannot be saved or loaded is refused on every rank, with what is wrong, and harms no checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import checkpoint_training as training
import pytest
import torch
import torch.distributed as dist
from fsdp_training import Tiny, blocks_of, plan_of
from gloo_ranks import GlooRanks
from torch import nn

from runtime.checkpoint.folder import complete_checkpoints, latest
from runtime.checkpoint.load import load
from runtime.checkpoint.load_weights import load_weights
from runtime.checkpoint.save import finish_saves, save, save_async
from runtime.checkpoint.to_state_dict import to_state_dict
from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.fsdp.shard import shard
from runtime.ranks import LaunchError

NUM_RANKS = 2


@pytest.fixture(scope="module")
def ranks() -> Iterator[GlooRanks]:
    with GlooRanks(NUM_RANKS) as started:
        yield started


@pytest.fixture(scope="module")
def saved(ranks: GlooRanks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    ranks.run(save_new, str(folder), 3)
    return folder


def make(
    width: int = 16, num_layers: int = 3, frozen: str = "", optimizer: Any = torch.optim.AdamW, one_group: bool = True
) -> ShardedOptimizer:
    torch.manual_seed(0)
    model = Tiny(width, num_layers)
    if frozen:
        model.get_parameter(frozen).requires_grad_(False)
    sharded = shard(model, plan_of(blocks_of(model), (2, 2, 2, 2), 1, "fp32", NUM_RANKS))
    names = [name for name, each in model.named_parameters() if each.requires_grad]
    groups = [{"params": names}] if one_group else [{"params": names[:2]}, {"params": names[2:]}]
    return ShardedOptimizer(sharded, optimizer, groups, lr=1e-3)


def save_new(folder: str, step: int) -> None:
    optimizer = make()
    training.train_plain(optimizer, 0, 1)
    save(optimizer, folder, step=step)


def reason(act: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    try:
        act(*arguments, **options)
    except LaunchError as error:
        return str(error)
    return "not refused"


def load_into_other(folder: str, options: dict[str, Any]) -> str:
    return reason(load, make(**options), folder)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_layers": 4}, ["layers.3.norm.weight of the model is missing in the checkpoint", "and 2 more"]),
        ({"num_layers": 2}, ["layers.2.norm.weight is missing in the model"]),
        ({"width": 8}, ["embed.weight has the shape [40, 16], in the model [40, 8]"]),
        ({"frozen": "layers.1.up.bias"}, ["layers.1.up.bias is trained, in the model frozen"]),
        ({"optimizer": torch.optim.SGD}, ["AdamW", "SGD", "load_weights"]),
        ({"one_group": False}, ["1 parameter groups, this optimizer 2"]),
    ],
)
def test_another_model_or_optimizer_is_refused_by_what_differs(
    ranks: GlooRanks, saved: Path, options: dict[str, Any], words: list[str]
) -> None:
    for text in ranks.run(load_into_other, str(saved), options):
        assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (lambda path: (path / "__1_0.distcp").unlink(), "__1_0.distcp has 0 bytes"),
        (lambda path: (path / ".metadata").unlink(), "it has no .metadata"),
        (lambda path: (path / ".metadata").write_bytes(b"not a pickle"), ".metadata is not what was written"),
        (lambda path: (path / "checkpoint.json").write_text("{}"), "checkpoint.json is not what was written"),
        (lambda path: (path / "__0_0.distcp").write_bytes(bytes(10**6)), "cannot read the checkpoint"),
    ],
)
def test_a_damaged_file_is_named(
    ranks: GlooRanks, saved: Path, tmp_path: Path, harm: Callable[[Path], Any], word: str
) -> None:
    shutil.copytree(saved, tmp_path / "copy")
    harm(tmp_path / "copy" / "step-3")
    for text in ranks.run(load_into_other, str(tmp_path / "copy" / "step-3"), {}):
        assert word in text


def save_wrongly(folder: str) -> list[str]:
    optimizer = make()
    found = [reason(save, optimizer, folder, step=-1), reason(save, optimizer, folder, step=1, keep=0)]
    found.append(reason(save, optimizer.inner, folder, step=1))
    optimizer.backward(optimizer.sharded.model(training.samples_of(0, dist.get_rank(), NUM_RANKS)))
    return [*found, reason(save, optimizer, folder, step=1), reason(load, optimizer, folder)]


def test_what_is_no_whole_step_is_not_saved(ranks: GlooRanks, tmp_path: Path) -> None:
    for negative, none_kept, inner, within, load_within in ranks.run(save_wrongly, str(tmp_path)):
        assert "step of a checkpoint is -1" in negative
        assert "keep=0" in none_kept
        assert "cannot save or load AdamW" in inner
        assert "call optimizer.step() before it" in within
        assert "call optimizer.step() before it" in load_within
    assert complete_checkpoints(tmp_path) == []


def save_into_file(folder: str) -> list[str]:
    optimizer = make()
    save(optimizer, folder, step=1)
    found = [reason(save, optimizer, f"{folder}/latest", step=2)]
    pending = save_async(optimizer, f"{folder}/latest", step=2)
    found.append(reason(save, optimizer, folder, step=3))
    save(optimizer, folder, step=4)
    return [*found, reason(pending.wait)]


def test_a_save_that_failed_beside_training_is_told_by_the_next_call(ranks: GlooRanks, tmp_path: Path) -> None:
    for at_once, later, waited in ranks.run(save_into_file, str(tmp_path)):
        assert "cannot write the checkpoint" in at_once
        assert "cannot write the checkpoint" in later
        assert "cannot write the checkpoint" in waited
    assert [each.name for each in complete_checkpoints(tmp_path)] == ["step-1", "step-4"]


def save_both_ways(folder: str) -> None:
    optimizer = make()
    training.train_plain(optimizer, 0, 2)
    note = {"step": [1]}
    save(optimizer, f"{folder}/waiting", step=2, extra=note)
    save_async(optimizer, f"{folder}/beside", step=2, extra=note)
    note["step"].append(2)
    training.train_plain(optimizer, 2, 4)
    finish_saves()
    loaded = load(optimizer, f"{folder}/beside")
    assert loaded.extra == {"step": [1]}


def test_training_goes_on_beside_a_save_without_a_trace_in_it(ranks: GlooRanks, tmp_path: Path) -> None:
    ranks.run(save_both_ways, str(tmp_path))
    waiting, beside = training.tensors_of(tmp_path / "waiting"), training.tensors_of(tmp_path / "beside")
    assert sorted(waiting) == sorted(beside)
    assert all(torch.equal(waiting[key], beside[key]) for key in waiting)


def draw_after(folder: str) -> list[list[float]]:
    optimizer = make()
    torch.manual_seed(dist.get_rank())
    torch.rand(3)
    save(optimizer, folder, step=0, rng=True)
    expected = torch.rand(3).tolist()
    torch.manual_seed(99)
    load(optimizer, folder, rng=True)
    return [expected, torch.rand(3).tolist()]


def load_with_rng(folder: str) -> str:
    return reason(load, make(), folder, rng=True)


def test_random_states_come_back_on_as_many_ranks_alone(ranks: GlooRanks, saved: Path, tmp_path: Path) -> None:
    results = ranks.run(draw_after, str(tmp_path))
    assert all(expected == found for expected, found in results)
    assert results[0] != results[1]
    assert all("no random states" in text for text in ranks.run(load_with_rng, str(saved)))


def load_plain(folder: str, path: str) -> str:
    optimizer = make()
    training.train_plain(optimizer, 5, 6)
    weights = torch.load(path, mmap=True)
    load_weights(optimizer, weights)
    save(optimizer, folder, step=0)
    return reason(load_weights, optimizer, {name: weights[name] for name in list(weights)[:-1]})


def test_weights_go_out_to_a_plain_model_and_come_back(ranks: GlooRanks, saved: Path, tmp_path: Path) -> None:
    weights = to_state_dict(saved)
    model = Tiny()
    model.load_state_dict(weights)
    doubled = {name: 2 * each for name, each in model.state_dict().items()}
    torch.save(doubled, tmp_path / "doubled.pt")
    texts = ranks.run(load_plain, str(tmp_path / "again"), str(tmp_path / "doubled.pt"))
    assert all("head.bias" in text for text in texts)
    again = to_state_dict(tmp_path / "again", torch.bfloat16)
    assert list(again) == list(doubled)
    assert all(torch.equal(again[name], doubled[name].bfloat16()) for name in doubled)


def test_tied_names_and_buffers_are_in_the_plain_weights(ranks: GlooRanks, tmp_path: Path) -> None:
    ranks.run(training.save_after_5, str(tmp_path), (1, 1, 2, 2), "fp32")
    weights = to_state_dict(latest(tmp_path) or tmp_path)
    model: nn.Module = training.Odd()
    model.load_state_dict(weights)
    assert torch.equal(model.get_buffer("scale"), training.Odd().get_buffer("scale") + 0.25)
    assert weights["num_batches"].dtype == torch.int64


def evaluate_around_load(folder: str) -> list[float]:
    optimizer = training.make_plain((2, 1, 2, 2), "fp32")
    samples = training.samples_of(0, 0, 1)

    def evaluate() -> float:
        with torch.no_grad():
            return optimizer.sharded.model(samples).item()

    save(optimizer, folder, step=0)
    saved = evaluate()
    training.train_plain(optimizer, 0, 2)
    trained = evaluate()
    load(optimizer, folder)
    return [saved, trained, evaluate()]


def test_parameters_that_were_left_gathered_are_not_seen_after_a_load(ranks: GlooRanks, tmp_path: Path) -> None:
    for saved, trained, loaded in ranks.run(evaluate_around_load, str(tmp_path)):
        assert saved != trained
        assert loaded == saved
