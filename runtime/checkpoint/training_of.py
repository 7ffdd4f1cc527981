"""Finds out what trains."""

from __future__ import annotations

from typing import Any

from runtime.checkpoint.ranges import Training
from runtime.checkpoint.sharded import ShardedTraining
from runtime.fsdp.optimizer import ShardedOptimizer
from runtime.ranks import LaunchError


def training_of(training: Any) -> Training:
    """Returns a training as checkpoints see it.

    Raises:
        LaunchError: It is none that can be saved.
    """
    optimizer = training if isinstance(training, ShardedOptimizer) else getattr(training, "optimizer", None)
    if isinstance(optimizer, ShardedOptimizer):
        return ShardedTraining(optimizer)
    if hasattr(training, "zero_optimization_stage"):
        from runtime.checkpoint.deepspeed_engine import EngineTraining

        return EngineTraining(training)
    raise LaunchError(
        f"cannot save or load {type(training).__name__}: give a ShardedOptimizer, or the engine of deepspeed.initialize"
    )
