"""What the fsdp engine reads in a configuration, and that it refuses what it does not do."""

from __future__ import annotations

from typing import Any

import pytest
from deepspeed.runtime.config import DeepSpeedConfig

from costmodels.strategy import StepShape
from planner.choose.fsdp_config import fsdp_config
from planner.errors import InputError
from planner.read.read_ds_config import understand
from runtime.fsdp.training_config import read_training_config
from runtime.ranks import LaunchError

FP32 = fsdp_config(StepShape(8, 2, 3, "fp32", "adamw"))


def read(**changes: Any) -> Any:
    return read_training_config({**FP32, **changes}, 8)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("optimizer", "kind"), [("adamw", "AdamW"), ("adam", "Adam"), ("sgd", "SGD")])
def test_what_is_written_is_what_is_read(precision: Any, optimizer: str, kind: str) -> None:
    found = read_training_config(fsdp_config(StepShape(8, 2, 3, precision, optimizer)), 8)
    assert (found.micro_batch_size, found.num_micro_batches, found.precision) == (2, 3, precision)
    assert (found.optimizer, found.max_norm, found.prefetch) == (kind, 0.0, 1)
    assert "torch_adam" not in found.optimizer_options
    assert (found.loss_scale() is not None) == (precision == "fp16")


def test_deepspeed_takes_the_configuration_and_ignores_what_is_not_its_own() -> None:
    config = DeepSpeedConfig(dict(FP32))
    assert (config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps) == (2, 3)
    assert (config.zero_optimization_stage, config.optimizer_name) == (0, "adamw")


def test_an_estimate_for_deepspeed_refuses_it_by_its_key() -> None:
    with pytest.raises(InputError, match="plan on the engine fsdp"):
        understand(dict(FP32))


def test_the_loss_scale_is_as_the_file_says() -> None:
    fp16 = {"enabled": True, "initial_scale_power": 4, "loss_scale_window": 2, "min_loss_scale": 8}
    scale = read(fp16=fp16).loss_scale()
    assert scale.value == 16
    assert scale.update(1.0)
    assert scale.update(1.0)
    assert scale.value == 32
    for value in (16, 8, 8):
        assert not scale.update(float("inf"))
        assert scale.value == value


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"zero_optimization": {"stage": 3}}, "zero_optimization, which the fsdp engine does not read"),
        ({"gradient_accumulation_steps": "auto"}, "gradient_accumulation_steps 'auto'"),
        ({"train_micro_batch_size_per_gpu": 0}, "train_micro_batch_size_per_gpu 0: write a whole number, 1 or more"),
        ({"train_batch_size": 47}, "train_batch_size 47, and micro-batch x micro-batches x ranks are 48"),
        ({"gradient_clipping": -1}, "gradient_clipping -1"),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, "both bf16 and fp16"),
        ({"bf16": True}, "bf16 True, which is no section"),
        ({"fp16": {"enabled": True, "loss_scale": 128}}, "fp16.loss_scale 128"),
        ({"optimizer": {}}, "names no optimizer"),
        ({"shardplan": {"prefetch": -1}}, "prefetch -1: write a whole number, 0 or more"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_by_its_key(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(LaunchError, match=complaint):
        read(**changes)
