"""Writes the configuration of a plan of the fsdp engine, in DeepSpeed's schema: all but what is sharded."""

from __future__ import annotations

from typing import Any

from costmodels.fsdp.uses import PREFETCH
from costmodels.strategy import StepShape
from planner.choose.ds_config import FP16, OPTIMIZERS


def fsdp_config(shape: StepShape) -> dict[str, Any]:
    """Returns a configuration that the fsdp engine obeys, with one top-level key that DeepSpeed does not know.

    DeepSpeed ignores that key (deepspeed/runtime/config.py, 0.19.8, reads the keys that it knows) and would train by
    the rest, at stage 0.

    Args:
        shape: Micro-batch, number of micro-batches, precision and optimizer.

    Raises:
        KeyError: The optimizer is not one that the planner knows.
    """
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": shape.micro_batch_size,
        "gradient_accumulation_steps": shape.num_micro_batches,
        "gradient_clipping": 0.0,
        "steps_per_print": 1_000_000_000,
        "wall_clock_breakdown": False,
        "optimizer": OPTIMIZERS[shape.optimizer],
    }
    if shape.precision == "bf16":
        config["bf16"] = {"enabled": True}
    if shape.precision == "fp16":
        config["fp16"] = {**FP16, "hysteresis": 1}
    config["shardplan"] = {"engine": "fsdp", "prefetch": PREFETCH}
    return config
