"""DeepSpeed reads the emitted configuration without a word; a user's is understood, or refused with its mend."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costmodels.deepspeed.knobs import choose_knobs, default_knobs
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Block, Parameter, Workload
from planner.choose.ds_config import ds_config
from planner.errors import InputError
from planner.read.read_ds_config import read_ds_config

PARAMETERS = (Parameter("a.weight", (1000, 300)), Parameter("a.bias", (300,)), Parameter("b.weight", (77, 300)))
WORKLOAD = Workload(PARAMETERS, (Block("a", 0, (0, 1)), Block("b", 1, (2,))), ())
STRATEGIES = {
    "0": Strategy(1, 1, 1, 1),
    "1": Strategy(1, 1, 1, 8),
    "2": Strategy(1, 1, 8, 8),
    "3": Strategy(8, 8, 8, 8),
    "kept": Strategy(8, 1, 8, 8),
    "hpz": Strategy(8, 4, 8, 8),
    "offload at 2": Strategy(1, 1, 8, 8, offload="optimizer"),
    "offload at 3": Strategy(8, 8, 8, 8, offload="optimizer"),
    "offload of all": Strategy(8, 8, 8, 8, offload="all"),
    "ZeRO++": Strategy(8, 4, 8, 8, quantized_weights=True, quantized_gradients=True),
}


def emitted(strategy: Strategy, precision: str = "bf16", optimizer: str = "adamw") -> dict[str, Any]:
    shape = StepShape(8, 2, 4, precision, optimizer, "cuda")  # type: ignore[arg-type]
    return ds_config(WORKLOAD, (strategy, strategy), shape)


def values(config: Any) -> list[Any]:
    if isinstance(config, dict):
        return [leaf for value in config.values() for leaf in values(value)]
    return [config]


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_deepspeed_reads_the_emitted_config_without_a_warning(
    strategy: Strategy, precision: str, caplog: pytest.LogCaptureFixture
) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig
    from deepspeed.utils import logger

    config = emitted(strategy, precision)
    logger.addHandler(caplog.handler)
    try:
        with warnings.catch_warnings(), caplog.at_level(logging.WARNING, logger.name):
            warnings.simplefilter("error")
            parsed = DeepSpeedConfig(config)
    finally:
        logger.removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    for key, value in config["zero_optimization"].items():
        read = getattr(parsed.zero_config, key.removeprefix("stage3_"))
        assert ({name: getattr(read, name) for name in value} if isinstance(value, dict) else read) == value
    assert "auto" not in values(config)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_what_is_emitted_reads_back_as_the_same(strategy: Strategy, optimizer: str, tmp_path: Path) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(emitted(strategy, "bf16", optimizer)))
    given = read_ds_config(path)
    shape = StepShape(8, 2, 4, "bf16", optimizer, "cuda")
    chosen = choose_knobs(WORKLOAD, (strategy, strategy), shape)
    fields = ("stage", "hpz_partition_size", "overlap_comm") + (
        ("max_reuse_distance", "max_live_parameters", "prefetch_bucket_size") if chosen.stage == 3 else ()
    )
    assert [getattr(given.knobs, f) for f in fields] == [getattr(chosen, f) for f in fields]
    assert (given.micro_batch_size, given.num_micro_batches, given.precision) == (2, 4, "bf16")
    assert given.optimizer == optimizer
    assert given.strategy(8, WORKLOAD.num_params) == strategy


def test_adam_is_not_turned_into_adamw() -> None:
    assert emitted(STRATEGIES["3"], optimizer="adam")["optimizer"]["params"]["adam_w_mode"] is False


def test_gradients_are_not_clipped_unasked() -> None:
    assert emitted(STRATEGIES["3"])["gradient_clipping"] == 0.0


@pytest.fixture
def read(tmp_path: Path) -> Callable[[Any], Any]:
    def reading(config: Any) -> Any:
        path = tmp_path / "given.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return read_ds_config(path)

    return reading


UNDERSTOOD = [
    ({"stage": "3"}, {"stage": 3}),
    ({"stage": 3, "stage3_prefetch_bucket_size": 1.5e7}, {"prefetch_bucket_size": 15_000_000}),
    ({"stage": 3, "prefetch_bucket_size": "7"}, {"prefetch_bucket_size": 7}),
    ({"stage": 3, "stage3_max_live_parameters": 1e9}, {"max_live_parameters": 10**9}),
    ({"stage": 2, "reduce_bucket_size": "auto"}, {"reduce_bucket_size": 500_000_000}),
    ({"stage": 2, "overlap_comm": None}, {"overlap_comm": False}),
    ({"stage": 3}, {"overlap_comm": True}),
    ({"stage": 2, "overlap_comm": "true"}, {"overlap_comm": True}),
    ({"stage": 2, "cpu_offload": False}, {"stage": 2}),
    ({"stage": 2, "offload_optimizer": {"device": "none"}}, {"stage": 2}),
    ({"stage": 3, "zero_hpz_partition_size": 0}, {"hpz_partition_size": 1}),
    (True, {"stage": 1}),
    (None, {"stage": 0}),
]


@pytest.mark.parametrize(("section", "expected"), UNDERSTOOD, ids=lambda value: json.dumps(value))
def test_values_are_read_as_deepspeed_reads_them(section: Any, expected: dict[str, Any], read: Any) -> None:
    knobs = read({"zero_optimization": section}).knobs
    assert {name: getattr(knobs, name) for name in expected} == expected


REFUSED = [
    ({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 15099494.4}}, "stage3_prefetch", "15099494"),
    ({"zero_optimization": {"stage": 2, "reduce_buckt_size": 5}}, "reduce_buckt_size", "'reduce_bucket_size'"),
    ({"zero_optimization": {"stage ": 2}}, "'stage '", "'stage'"),
    ({"gradient_accumulation_steps ": 2}, "'gradient_accumulation_steps '", "'gradient_accumulation_steps'"),
    ({"gradient_acumulation_steps": 2}, "gradient_acumulation_steps", "'gradient_accumulation_steps'"),
    ({"zero_optimization": {"stage": "auto"}}, "stage", "write the stage"),
    ({"zero_optimization": {"stage": 4}}, "stage", "0, 1, 2 or 3"),
    ({"zero_optimization": {"stage": 2, "cpu_offload_param": True}}, "offload_param", "stage 3"),
    ({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}, "offload_param", "offload_optimizer"),
    ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}, "offload_optimizer.device", "'cpu'"),
    ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}, "ratio", "delete"),
    ({"zero_optimization": {"stage": 2, "cpu_offload": True, "compute_grad_norm": False}}, "compute_grad_norm", "true"),
    ({"zero_optimization": {"stage": 3, "mics_shard_size": -1}}, "mics_shard_size", "delete"),
    ({"amp": {"enabled": False}}, "amp", "delete"),
    ({"zero_optimization": {"prefetch_bucket_size": 1, "stage3_prefetch_bucket_size": 2}}, "prefetch", "keep one"),
    ({"zero_optimization": {"stage": 2, "reduce_bucket_size": 0}}, "reduce_bucket_size", "500000000"),
    ({"zero_optimization": {"stage": 2, "reduce_bucket_size": "5e8"}}, "reduce_bucket_size", "500000000"),
    ({"zero_optimization": {"stage": 2, "something_else": 1}}, "something_else", "delete"),
    ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, "bf16.enabled", "keep one"),
    ({"optimizer": {"type": "OneBitAdam"}}, "optimizer.type", "AdamW"),
    ({"train_micro_batch_size_per_gpu": 0}, "train_micro_batch_size_per_gpu", "at least 1"),
    ('{"zero_optimization": {"stage": 2, "stage": 3}}', "stage", "keep one"),
    ("[1]", "given.json", "object"),
    ("{", "given.json", "JSON"),
]


@pytest.mark.parametrize(("config", "key", "mend"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_deepspeed_would_refuse_is_refused_with_the_key_and_the_mend(
    config: Any, key: str, mend: str, read: Any
) -> None:
    with pytest.raises(InputError) as refusal:
        read(config)
    assert key in str(refusal.value)
    assert mend in str(refusal.value)


@pytest.mark.parametrize(
    ("section", "offload"),
    [
        ({"stage": 2, "cpu_offload": True}, "optimizer"),
        ({"stage": 1, "offload_optimizer": {"device": "cpu", "pin_memory": False}}, "optimizer"),
        ({"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}, "all"),
        ({"stage": 3, "offload_optimizer": {"device": "none"}}, "none"),
        ({"stage": 3}, "none"),
    ],
    ids=str,
)
def test_what_goes_to_the_host_is_read_by_its_new_and_old_names(
    section: dict[str, Any], offload: str, read: Any
) -> None:
    assert read({"zero_optimization": section}).strategy(8, 1000).offload == offload


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_ds_config(tmp_path / "none.json")


def test_auto_and_unknown_keys_are_said(read: Any) -> None:
    given = read({"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}, "my_own": 1})
    assert any("auto" in warning for warning in given.warnings)
    assert any("my_own" in warning for warning in given.warnings)


def test_defaults_are_those_of_the_installed_deepspeed() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    for stage in range(4):
        ours, theirs = default_knobs(stage), DeepSpeedZeroConfig(stage=stage)
        assert ours.hpz_partition_size == theirs.zero_hpz_partition_size
        for name in ours.__slots__:
            if hasattr(theirs, name):
                assert getattr(ours, name) == getattr(theirs, name), name
