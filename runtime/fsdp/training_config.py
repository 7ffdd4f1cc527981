"""What the fsdp engine obeys in a configuration of DeepSpeed's schema: all that is there, or it refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.fsdp.loss_scale import INITIAL, LEAST, WINDOW, LossScale
from runtime.fsdp.strategies import Precision
from runtime.ranks import LaunchError

_READ = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "optimizer",
    "bf16",
    "fp16",
    "shardplan",
    # Of what DeepSpeed prints, which changes nothing of the training.
    "steps_per_print",
    "wall_clock_breakdown",
)
_FP16 = ("enabled", "loss_scale", "initial_scale_power", "loss_scale_window", "min_loss_scale", "hysteresis")
_DEEPSPEED_OPTIONS = ("torch_adam", "adam_w_mode")
"""Options of an optimizer that say which of DeepSpeed's own to take; here it is always torch's."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How a step is made, beside what is sharded."""

    micro_batch_size: int
    num_micro_batches: int
    precision: Precision
    optimizer: str
    """A class of torch.optim."""
    optimizer_options: Mapping[str, Any]
    max_norm: float
    """Gradients are clipped to it; 0: they are not."""
    prefetch: int
    """Blocks that are gathered ahead of the running one."""
    initial_loss_scale: float = INITIAL
    loss_scale_window: int = WINDOW
    least_loss_scale: float = LEAST
    error_feedback: bool = True
    """Whether what a quantization of gradients leaves out is added before the next."""

    def loss_scale(self) -> LossScale | None:
        """Returns the loss scale to begin with; None but in fp16."""
        if self.precision != "fp16":
            return None
        return LossScale(self.initial_loss_scale, window=self.loss_scale_window, least=self.least_loss_scale)


def read_training_config(config: Mapping[str, Any], world_size: int) -> TrainingConfig:
    """Returns what a configuration asks for.

    Args:
        config: What `ds_config.json` holds.
        world_size: Ranks of the plan.

    Raises:
        LaunchError: A key that the engine does not read, or a value that cannot be; the text names it.
    """
    for key in config:
        if key not in _READ:
            raise LaunchError(
                f"ds_config.json has {key}, which the fsdp engine does not read: what is sharded is in plan.json. "
                "Delete the key, or plan with --engine deepspeed"
            )
    micro_batch_size = _whole(config, "train_micro_batch_size_per_gpu")
    num_micro_batches = _whole(config, "gradient_accumulation_steps")
    _check_batch(config, micro_batch_size * num_micro_batches * world_size)
    name, options = _optimizer(_section(config, "optimizer"))
    fp16 = _section(config, "fp16")
    _check_fp16(fp16)
    return TrainingConfig(
        micro_batch_size=micro_batch_size,
        num_micro_batches=num_micro_batches,
        precision=_precision(_section(config, "bf16"), fp16),
        optimizer=name,
        optimizer_options=options,
        max_norm=_number(config.get("gradient_clipping", 0.0), "gradient_clipping"),
        prefetch=_whole({"prefetch": 1, **_section(config, "shardplan")}, "prefetch", least=0),
        # What is left out has DeepSpeed's own default.
        initial_loss_scale=2.0 ** _number(fp16.get("initial_scale_power", 16), "fp16.initial_scale_power"),
        loss_scale_window=_whole({"loss_scale_window": WINDOW, **fp16}, "loss_scale_window"),
        least_loss_scale=_number(fp16.get("min_loss_scale", LEAST), "fp16.min_loss_scale"),
        error_feedback=_flag(_section(config, "shardplan").get("error_feedback", True), "shardplan.error_feedback"),
    )


def _check_batch(config: Mapping[str, Any], global_batch_size: int) -> None:
    if "train_batch_size" in config and _whole(config, "train_batch_size") != global_batch_size:
        raise LaunchError(
            f"ds_config.json has train_batch_size {config['train_batch_size']}, and micro-batch x micro-batches x "
            f"ranks are {global_batch_size}: correct one of them, or delete train_batch_size"
        )


def _optimizer(section: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = section.get("type")
    if not isinstance(kind, str):
        raise LaunchError('ds_config.json names no optimizer: write {"optimizer": {"type": "AdamW", "params": {...}}}')
    options = dict(_section(section, "params"))
    # DeepSpeed's Adam is AdamW unless told otherwise.
    # Source: `_configure_basic_optimizer`, deepspeed/runtime/engine.py, 0.19.8.
    if kind.lower() == "adam" and options.get("adam_w_mode", True):
        kind = "AdamW"
    return kind, {name: value for name, value in options.items() if name not in _DEEPSPEED_OPTIONS}


def _precision(bf16: Mapping[str, Any], fp16: Mapping[str, Any]) -> Precision:
    if bf16.get("enabled") and fp16.get("enabled"):
        raise LaunchError("ds_config.json enables both bf16 and fp16: leave one")
    for key in bf16:
        if key != "enabled":
            raise LaunchError(f"ds_config.json has bf16.{key}, which the fsdp engine does not read; delete the key")
    if bf16.get("enabled"):
        return "bf16"
    return "fp16" if fp16.get("enabled") else "fp32"


def _check_fp16(section: Mapping[str, Any]) -> None:
    for key in section:
        if key not in _FP16:
            raise LaunchError(f"ds_config.json has fp16.{key}, which the fsdp engine does not read; delete the key")
    for key, only in (("loss_scale", 0), ("hysteresis", 1)):
        if section.get(key, only) != only:
            raise LaunchError(
                f"ds_config.json has fp16.{key} {section[key]!r}; the fsdp engine has a dynamic loss scale that halves "
                f"at once: write {only}, or plan with --engine deepspeed"
            )


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = config.get(key, {})
    if not isinstance(section, Mapping):
        raise LaunchError(f"ds_config.json has {key} {section!r}, which is no section: write an object")
    return section


def _whole(config: Mapping[str, Any], key: str, least: int = 1) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise LaunchError(f"ds_config.json has {key} {value!r}: write a whole number, {least} or more")
    return value


def _flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise LaunchError(f"ds_config.json has {key} {value!r}: write true or false")
    return value


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise LaunchError(f"ds_config.json has {key} {value!r}: write a number, 0 or more")
    return float(value)
