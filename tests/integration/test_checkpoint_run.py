"""Runs of emitted plans save, and go on where another plan's run has stopped, in either engine."""

from __future__ import annotations

from pathlib import Path

import checkpoint_training as training
import pytest
from emitted import emitted, losses
from gloo_ranks import GlooRanks

from runtime.checkpoint.folder import complete_checkpoints, latest
from runtime.checkpoint.of_run import RunCheckpoints
from runtime.settings import parse_options


def run_to(folder: str, last: int, every: int | None, degrees: training.Degrees) -> list[float]:
    """Returns the losses of the steps that a run has left to do."""
    optimizer = training.make_plain(degrees, "fp32")
    checkpoints = RunCheckpoints(optimizer, Path(folder), every)
    done = checkpoints.resume()
    found = []
    for step in range(done, last):
        found += training.train_plain(optimizer, step, step + 1)
        checkpoints.after_step(step + 1)
    checkpoints.finish(max(done, last))
    return found


def test_a_run_saves_every_so_many_steps_and_the_last(tmp_path: Path) -> None:
    with GlooRanks(2) as ranks:
        uninterrupted = ranks.run(run_to, str(tmp_path / "whole"), 5, None, (1, 1, 2, 2))[0]
        first = ranks.run(run_to, str(tmp_path / "parts"), 3, 2, (1, 1, 2, 2))[0]
        assert [each.name for each in complete_checkpoints(tmp_path / "parts")] == ["step-2", "step-3"]
        second = ranks.run(run_to, str(tmp_path / "parts"), 5, 2, (2, 2, 2, 2))[0]
        nothing = ranks.run(run_to, str(tmp_path / "parts"), 5, 2, (1, 1, 1, 1))[0]
    assert [*first, *second] == pytest.approx(uninterrupted, rel=1e-6)
    assert (len(first), len(second), nothing) == (3, 2, [])
    assert [each.name for each in complete_checkpoints(tmp_path / "whole")] == ["step-5"]
    assert [each.name for each in complete_checkpoints(tmp_path / "parts")] == ["step-2", "step-3", "step-4", "step-5"]


@pytest.mark.slow
def test_a_launched_run_goes_on_in_the_other_engine_as_if_nothing_had_been(tmp_path: Path) -> None:
    fsdp = emitted(tmp_path / "fsdp", (1, 2, 2), engine="fsdp")
    deepspeed = emitted(tmp_path / "deepspeed", (2, 2, 2), engine="deepspeed")
    saves = ("--checkpoint", str(tmp_path / "saved"), "--checkpoint-every", "2")
    uninterrupted = losses(fsdp, 2, 6)
    assert losses(fsdp, 2, 3, *saves, "--resume") == pytest.approx(uninterrupted[:3], rel=1e-6)
    assert [each.name for each in complete_checkpoints(tmp_path / "saved")] == ["step-2", "step-3"]
    assert losses(deepspeed, 2, 5, *saves, "--resume") == pytest.approx(uninterrupted[3:5], rel=1e-5)
    assert losses(fsdp, 2, 6, *saves, "--resume") == pytest.approx(uninterrupted[5:], rel=1e-5)
    assert latest(tmp_path / "saved") == tmp_path / "saved" / "step-6"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--resume"], "need --checkpoint"),
        (["--checkpoint-every", "3"], "need --checkpoint"),
        (["--checkpoint", "folder", "--record"], "leave out --checkpoint"),
        (["--checkpoint", "folder", "--checkpoint-every", "0"], "argument --checkpoint-every"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_options(options)
    assert ended.value.code == 2
    assert word in capsys.readouterr().err
