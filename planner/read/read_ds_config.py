"""Reads a user's DeepSpeed configuration: every key understood as DeepSpeed 0.19.8 does, or refused with its mend."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodels.deepspeed.knobs import Knobs, default_knobs
from costmodels.strategy import Offload, Precision
from planner.errors import InputError
from planner.read import ds_config_keys as keys
from planner.read import offload_keys
from planner.read.ds_config_values import flag, leaf_module, optional_whole, whole
from planner.read.given_config import GivenConfig

_QUANTIZED = {"zero_quantized_weights": "quantized_weights", "zero_quantized_gradients": "quantized_gradients"}
_OPTIMIZERS = {"adamw": "adamw", "adam": "adam", "sgd": "sgd"}
_PRECISIONS: dict[str, Precision] = {
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
}


def read_ds_config(path: Path) -> GivenConfig:
    """Returns what the configuration at `path` says; keys that it leaves out have DeepSpeed's own defaults.

    Raises:
        InputError: Not readable, a key that DeepSpeed does not have or has removed, a value that it would refuse, or
            a setting that the cost model does not follow. The text names the key and what to write instead.
    """
    return understand(_load(path))


def understand(config: dict[str, Any]) -> GivenConfig:
    """Returns what a configuration says, as `read_ds_config`.

    Raises:
        InputError: As `read_ds_config`, but for what is about the file.
    """
    if "shardplan" in config:
        raise InputError(
            "this is the configuration of a plan on the engine fsdp, and DeepSpeed would train it at stage 0: what is "
            "sharded is in the plan.json beside it; estimate that by --engine fsdp --degrees p,g,o, or delete the key "
            "shardplan"
        )
    warnings: list[str] = []
    _check_names(config, keys.TOP_LEVEL, keys.REMOVED_TOP_LEVEL, "", warnings)
    precision = _precision(config)
    knobs, offload = _knobs(config.get("zero_optimization"), warnings)
    knobs = replace(
        knobs,
        grad_accum_precision=_accumulation(config),
        check_grad_overflow=flag(_section(config, "bf16").get("check_grad_overflow", True), "bf16.check_grad_overflow"),
    )
    _check_accumulation(knobs, precision)
    if config.get("communication_data_type") not in (None, "auto"):
        raise InputError("communication_data_type: not followed by the cost model; delete the key to estimate")
    return GivenConfig(
        knobs=knobs,
        micro_batch_size=optional_whole(config, "train_micro_batch_size_per_gpu"),
        num_micro_batches=optional_whole(config, "gradient_accumulation_steps"),
        global_batch_size=optional_whole(config, "train_batch_size"),
        precision=precision,
        optimizer=_optimizer(config),
        warnings=tuple(warnings),
        offload=offload,
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_without_duplicates)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path}: not a DeepSpeed configuration: the file holds no JSON object")
    return config


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError(f"{key}: the key is there twice ({found[key]!r} and {value!r}); keep one")
        found[key] = value
    return found


def _check_names(
    section: dict[str, Any], known: Iterable[str], removed: Iterable[str], where: str, warnings: list[str]
) -> None:
    known = tuple(known)
    for key in section:
        if key in removed:
            raise InputError(
                f"{where}{key}: removed from DeepSpeed 0.19.8, which refuses it even when false; delete it"
            )
        if key in known:
            continue
        near = difflib.get_close_matches(key.strip(), known, n=1, cutoff=0.75)
        if near:
            raise InputError(f"{where}{key!r}: DeepSpeed has no such key; write {near[0]!r}")
        if where:
            raise InputError(f"{where}{key!r}: DeepSpeed has no such key and refuses it; delete it")
        warnings.append(f"{key}: DeepSpeed has no such key and ignores it")


def _knobs(section: Any, warnings: list[str]) -> tuple[Knobs, Offload]:
    """Returns the settings, and what lies in host memory."""
    if section is None or isinstance(section, bool):
        return default_knobs(1 if section else 0), "none"
    if not isinstance(section, dict):
        raise InputError(f"zero_optimization: {section!r} is no section; write {{'stage': 0}} to {{'stage': 3}}")
    where = "zero_optimization."
    names = [*keys.SIZES, *keys.FLAGS, *keys.NOT_FOLLOWED, *keys.HARMLESS, "stage", "zero_hpz_partition_size"]
    names += ["leaf_module", *_QUANTIZED, *offload_keys.NAMES]
    names += [f"stage3_{name}" for name in keys.PREFIXED]
    _check_names(section, names, keys.REMOVED_ZERO, where, warnings)
    if section.get("stage") == "auto":
        raise InputError("zero_optimization.stage: DeepSpeed takes 'auto' for stage 0; write the stage")
    given = _without_prefix(section, where, warnings)
    stage = whole(given.pop("stage", 0), f"{where}stage")
    if stage not in range(4):
        raise InputError(f"zero_optimization.stage: {stage} is none; write 0, 1, 2 or 3")
    _check_followed(given, where)
    written = {key.removeprefix("stage3_"): where + key for key in section}
    sizes = {name: whole(given[name], written[name]) for name in keys.SIZES if name in given}
    flags = {name: flag(given[name], written[name]) for name in keys.FLAGS if given.get(name) is not None}
    if sizes.get("reduce_bucket_size") == 0:
        raise InputError(
            "zero_optimization.reduce_bucket_size: DeepSpeed wants at least 1; write 500000000, its default"
        )
    if stage in (1, 2) and flags.get("contiguous_gradients") is False:
        raise InputError("zero_optimization.contiguous_gradients: false is not followed by the cost model; write true")
    secondary = whole(given.get("zero_hpz_partition_size", 1), f"{where}zero_hpz_partition_size")
    knobs = replace(default_knobs(stage), hpz_partition_size=max(1, secondary) if stage == 3 else 1)
    knobs = replace(knobs, **leaf_module(given.get("leaf_module"), f"{where}leaf_module"))  # type: ignore[arg-type]
    quantized = {field: flag(given.get(name, False), where + name) for name, field in _QUANTIZED.items()}
    offload = offload_keys.offload_of(given, stage, where)
    return replace(knobs, **sizes, **flags, **quantized), offload  # type: ignore[arg-type]


def _without_prefix(section: dict[str, Any], where: str, warnings: list[str]) -> dict[str, Any]:
    """Returns the section by the names without `stage3_`; "auto" is DeepSpeed's default."""
    given: dict[str, Any] = {}
    for key, value in section.items():
        name = key.removeprefix("stage3_")
        if name in given or (name != key and name in section):
            raise InputError(f"{where}{name}: given with and without the prefix stage3_; keep one")
        if value == "auto":
            warnings.append(
                f"{where}{key}: 'auto' is DeepSpeed's own default here; the Hugging Face Trainer fills it in"
            )
            continue
        given[name] = value
    return given


def _check_followed(given: dict[str, Any], where: str) -> None:
    for name, fine in keys.NOT_FOLLOWED.items():
        value = given.get(name, fine[0])
        if isinstance(value, dict) and value.get("device") == "none":
            continue
        if value not in fine:
            raise InputError(
                f"{where}{name}: {value!r} is not followed by the cost model of this version; delete the key"
            )


def _section(config: dict[str, Any], name: str) -> dict[str, Any]:
    section = config.get(name, config.get("bfloat16") if name == "bf16" else None)
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise InputError(f"{name}: {section!r} is no section; write {{'enabled': true}}")
    return section


def _precision(config: dict[str, Any]) -> Precision | None:
    values = {name: _section(config, name).get("enabled", False) for name in ("bf16", "fp16")}
    enabled: list[Precision] = [
        _PRECISIONS[name] for name, value in values.items() if value != "auto" and flag(value, f"{name}.enabled")
    ]
    if len(enabled) > 1:
        raise InputError("bf16.enabled and fp16.enabled: both are true; keep one")
    if enabled:
        return enabled[0]
    return None if "auto" in values.values() else "fp32"


def _accumulation(config: dict[str, Any]) -> Precision | None:
    value = _section(config, "data_types").get("grad_accum_dtype")
    if value in (None, "auto"):
        return None
    if value not in _PRECISIONS:
        raise InputError(f"data_types.grad_accum_dtype: {value!r} is no type; write 'fp32', 'bf16' or 'fp16'")
    return _PRECISIONS[value]


def _check_accumulation(knobs: Knobs, precision: Precision | None) -> None:
    accumulated = knobs.grad_accum_precision
    if accumulated in (None, precision) or precision is None:
        return
    if knobs.stage == 0:
        raise InputError(f"data_types.grad_accum_dtype: stage 0 accumulates in {precision} only; delete the key")
    if knobs.stage == 1:
        raise InputError(
            f"data_types.grad_accum_dtype: {accumulated} with {precision} at stage 1 is not followed by the cost "
            f"model; write {precision!r}, or use stage 2"
        )


def _optimizer(config: dict[str, Any]) -> str | None:
    section = _section(config, "optimizer")
    kind = section.get("type")
    if kind in (None, "auto"):
        return None
    name = str(kind).lower()
    if name not in _OPTIMIZERS:
        raise InputError(f"optimizer.type: {kind!r} is not planned for; write 'AdamW', 'Adam' or 'SGD'")
    if name == "adam" and flag(section.get("params", {}).get("adam_w_mode", True), "optimizer.params.adam_w_mode"):
        return "adamw"
    return _OPTIMIZERS[name]
