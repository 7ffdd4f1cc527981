"""Models of images and texts run from what was emitted: the same losses by every strategy, the traffic as predicted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import cli

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from hf_configs import CONFIGS

pytestmark = pytest.mark.slow

JOB = ["--hardware", "local-cpu", "--nodes", "1", "--ranks-per-node", "2", "--global-batch-size", "4"]


def _ran(folder: Path, spec: Path, degrees: str, more: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    out = folder / degrees.replace(",", "-")
    arguments = ["estimate", str(spec), *JOB, "--precision", "fp32", "--degrees", degrees, *more, "--out", str(out)]
    assert cli.answer(arguments) == 0
    capsys.readouterr()
    assert cli.answer(["run", str(out), "--steps", "3", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Qwen2VLForConditionalGeneration", ["--sequence-length", "32", "--model-arg", "image_size=32"]),
        ("DetrForObjectDetection", ["--model-arg", "image_size=64"]),
        ("BartForSequenceClassification", ["--sequence-length", "16"]),
    ],
)
def test_what_generated_data_keeps_lets_every_strategy_train_alike(
    name: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_type, fields = CONFIGS[name]
    spec = tmp_path / "config.json"
    spec.write_text(json.dumps({"model_type": model_type, "architectures": [name], **fields}))
    reports = [_ran(tmp_path, spec, degrees, more, capsys) for degrees in ("1,1,1", "1,2,2", "2,2,2")]
    losses = [[step["loss"] for step in report["steps"]] for report in reports]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)
    for report in reports:
        assert report["measured"]["traffic"] == report["predicted"]["traffic"]
