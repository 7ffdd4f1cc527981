"""Executing a plan and recording what it does; carried along by the launcher, so it imports only torch and itself.

Training code of one's own finds here all that it needs. An emitted folder holds this package as `shardplan_runtime`:

    from shardplan_runtime import Recorder, ShardedOptimizer, shard

Errors that a caller has to mend are `LaunchError`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.checkpoint.folder import latest
    from runtime.checkpoint.load import Loaded, load
    from runtime.checkpoint.load_weights import load_weights
    from runtime.checkpoint.save import finish_saves, save, save_async
    from runtime.checkpoint.to_state_dict import to_state_dict
    from runtime.fsdp.optimizer import ShardedOptimizer
    from runtime.fsdp.shard import Sharded, shard
    from runtime.fsdp.strategies import BlockStrategy, ShardingPlan, read_plan
    from runtime.ranks import LaunchError, Ranks, join
    from runtime.record_memory import MemoryRecorder, MemoryUse
    from runtime.record_traffic import RecordedTraffic, RecordTraffic
    from runtime.recorder import Recorder
    from runtime.recording import Comparison, Recording
    from runtime.weights import parameters_without_memory

__all__ = [
    "BlockStrategy",
    "Comparison",
    "LaunchError",
    "Loaded",
    "MemoryRecorder",
    "MemoryUse",
    "Ranks",
    "RecordTraffic",
    "RecordedTraffic",
    "Recorder",
    "Recording",
    "Sharded",
    "ShardedOptimizer",
    "ShardingPlan",
    "finish_saves",
    "join",
    "latest",
    "load",
    "load_weights",
    "parameters_without_memory",
    "read_plan",
    "save",
    "save_async",
    "shard",
    "to_state_dict",
]

_MODULES = {
    "BlockStrategy": "fsdp.strategies",
    "Comparison": "recording",
    "LaunchError": "ranks",
    "Loaded": "checkpoint.load",
    "MemoryRecorder": "record_memory",
    "MemoryUse": "record_memory",
    "Ranks": "ranks",
    "RecordTraffic": "record_traffic",
    "RecordedTraffic": "record_traffic",
    "Recorder": "recorder",
    "Recording": "recording",
    "Sharded": "fsdp.shard",
    "ShardedOptimizer": "fsdp.optimizer",
    "ShardingPlan": "fsdp.strategies",
    "finish_saves": "checkpoint.save",
    "join": "ranks",
    "latest": "checkpoint.folder",
    "load": "checkpoint.load",
    "load_weights": "checkpoint.load_weights",
    "parameters_without_memory": "weights",
    "read_plan": "fsdp.strategies",
    "save": "checkpoint.save",
    "save_async": "checkpoint.save",
    "shard": "fsdp.shard",
    "to_state_dict": "checkpoint.to_state_dict",
}
"""Where each name is. A module is imported when its name is asked for: the planner, too, imports this package."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
