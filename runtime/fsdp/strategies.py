"""What a plan says of each block, as the runtime needs it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runtime.ranks import LaunchError

Precision = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, slots=True)
class BlockStrategy:
    """The degrees of the blocks of one class."""

    blocks: tuple[str, ...]
    """Module paths; "" is the root."""
    param_degree: int
    secondary_degree: int
    """s: 1 keeps parameters from forward to backward, p gathers them anew, between them they are resharded to s."""
    grad_degree: int
    optim_degree: int
    quantized_weights: bool = False
    quantized_gradients: bool = False
    hierarchical: bool = False

    @property
    def degrees(self) -> tuple[int, int, int, int]:
        """(p, s, g, o)."""
        return (self.param_degree, self.secondary_degree, self.grad_degree, self.optim_degree)


@dataclass(frozen=True, slots=True)
class ShardingPlan:
    """All that the runtime needs of a plan."""

    strategies: tuple[BlockStrategy, ...]
    world_size: int
    ranks_per_node: int
    num_micro_batches: int
    precision: Precision
    level_sizes: tuple[int, ...]
    """Of the machine, inner first."""
    recompute_modules: tuple[str, ...] = ()
    prefetch: int = 1
    """Blocks that are gathered ahead of the running one."""
    error_feedback: bool = True
    """Whether what a quantization of gradients leaves out is added before the next."""


def read_plan(plan: ShardingPlan | Mapping[str, Any] | str | Path) -> ShardingPlan:
    """Returns a plan from its folder, its `plan.json`, or the document in it.

    Raises:
        LaunchError: The file cannot be read, or is no plan.
    """
    if isinstance(plan, ShardingPlan):
        return plan
    document = plan_document(plan)
    try:
        hardware, job = document["hardware"], document["job"]
        return ShardingPlan(
            strategies=tuple(_strategy(each) for each in document["strategies"]),
            world_size=hardware["world_size"],
            ranks_per_node=hardware["ranks_per_node"],
            num_micro_batches=job["num_micro_batches"],
            precision=job["precision"],
            level_sizes=tuple(level["size"] for level in hardware["levels"]),
            recompute_modules=tuple(document["model"]["recompute_modules"]),
            prefetch=document.get("ds_config", {}).get("shardplan", {}).get("prefetch", 1),
            error_feedback=document.get("ds_config", {}).get("shardplan", {}).get("error_feedback", True),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise LaunchError(f"this is no plan ({error!r}): give plan.json or its folder") from error


def plan_document(plan: Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    """Returns what is in `plan.json`, given its folder, its path, or just that.

    Raises:
        LaunchError: The file cannot be read, or is not JSON.
    """
    if isinstance(plan, Mapping):
        return plan
    path = Path(plan) / "plan.json" if Path(plan).is_dir() else Path(plan)
    try:
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LaunchError(f"cannot read the plan {path}: {error}") from error
    return document


def _strategy(document: Mapping[str, Any]) -> BlockStrategy:
    if document.get("offload", "none") != "none":
        raise LaunchError("the fsdp engine keeps optimizer states on the device; plan with --offload none")
    return BlockStrategy(
        blocks=tuple(document["blocks"]),
        param_degree=document["param_degree"],
        secondary_degree=document["secondary_degree"],
        grad_degree=document["grad_degree"],
        optim_degree=document["optim_degree"],
        quantized_weights=document.get("quantized_weights", False),
        quantized_gradients=document.get("quantized_gradients", False),
        hierarchical=document.get("hierarchical", False),
    )


def one_strategy(blocks: Sequence[str], param_degree: int, grad_degree: int, optim_degree: int) -> BlockStrategy:
    """Returns one strategy for some blocks, with parameters gathered anew for backward."""
    return BlockStrategy(tuple(blocks), param_degree, param_degree, grad_degree, optim_degree)
