"""Runs of emitted plans save, and go on where another plan's run has stopped, in either engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from emitted import emitted, losses, torchrun

from runtime.checkpoint.folder import complete_checkpoints, latest


def test_a_run_goes_on_in_the_other_engine_as_if_nothing_had_been(tmp_path: Path) -> None:
    fsdp = emitted(tmp_path / "fsdp", (1, 2, 2), engine="fsdp")
    deepspeed = emitted(tmp_path / "deepspeed", (2, 2, 2), engine="deepspeed")
    saves = ("--checkpoint", str(tmp_path / "saved"), "--checkpoint-every", "2")
    uninterrupted = losses(fsdp, 2, 6)
    assert losses(fsdp, 2, 3, *saves, "--resume") == pytest.approx(uninterrupted[:3], rel=1e-6)
    assert [each.name for each in complete_checkpoints(tmp_path / "saved")] == ["step-2", "step-3"]
    assert losses(deepspeed, 2, 5, *saves, "--resume") == pytest.approx(uninterrupted[3:5], rel=1e-5)
    assert losses(fsdp, 2, 6, *saves, "--resume") == pytest.approx(uninterrupted[5:], rel=1e-5)
    assert latest(tmp_path / "saved") == tmp_path / "saved" / "step-6"


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    folder = emitted(tmp_path / "plan", (1, 1, 2), engine="fsdp")
    for options, word in (
        (("--resume",), "need --checkpoint"),
        (("--checkpoint", str(tmp_path), "--record"), "--record measures"),
    ):
        done = torchrun(folder, 1, *options)
        assert "exitcode  : 2" in done.stderr
        assert word in done.stderr
