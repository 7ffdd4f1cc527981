"""All that can be run of a model on a machine: every point of both engines, the plan, and what people take today."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodels.degrees import strategies
from costmodels.strategy import Strategy
from hw_profiles.schema import HardwareProfile
from planner import estimate, plan
from planner.emit.emit import emit
from planner.errors import InputError
from planner.job import Job
from planner.plan import Plan

DEFAULT_STAGES = (2, 3)
"""What people take without a planner, with DeepSpeed's own settings."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to train, with the folder that runs it."""

    name: str
    """Unique within a scenario."""
    role: str
    """`point` of the space, the `plan` that was chosen, a `default` of today, or `plain`: `fully_shard` by itself."""
    engine: str
    folder: Path
    predicted: dict[str, Any]
    """As `plan.json` has it."""


def candidates(
    model: str, profile: HardwareProfile, job: Job, folder: Path, points: Container[str] | None = None
) -> list[Candidate]:
    """Emits every way to train into a folder of its own beneath `folder`, and returns them.

    Args:
        model: A saved graph (`shardplan trace --out`).
        profile: The machine.
        job: The batch, with a fixed micro-batch size, so that all of them do the same work.
        folder: Where to write.
        points: Names of those of the space to take; None: all.
    """
    found = [_candidate(plan(model, profile, job), "plan", "plan", folder)]
    for name, given in _points(model, profile, job):
        if points is not None and name not in points:
            continue
        found.append(_candidate(given, name, "point", folder))
    for stage in DEFAULT_STAGES:
        given = estimate(model, profile, job, ds_config=_default_config(stage, job, profile, folder))
        found.append(_candidate(given, _default_name(stage), "default", folder))
    for degree in dict.fromkeys((profile.world_size, profile.ranks_per_node)):
        asked = job.model_copy(update={"engine": "fsdp"})
        found.append(
            _candidate(estimate(model, profile, asked, (degree,) * 3), f"fully_shard {degree}", "plain", folder)
        )
    return found


def fixed_plans(model: str, profile: HardwareProfile, job: Job, folder: Path) -> dict[str, Plan]:
    """Returns every way to train that does not hang on a choice, as the present code has it, by name."""
    found = dict(_points(model, profile, job))
    for stage in DEFAULT_STAGES:
        config = _default_config(stage, job, profile, folder)
        found[_default_name(stage)] = estimate(model, profile, job, ds_config=config)
    return found


def _default_name(stage: int) -> str:
    return f"deepspeed default stage {stage}"


def _points(model: str, profile: HardwareProfile, job: Job) -> Iterator[tuple[str, Plan]]:
    sizes = tuple(level.size for level in profile.levels)
    for strategy in strategies(sizes):
        for engine in ("deepspeed", "fsdp"):
            asked = job.model_copy(update={"engine": engine, "recompute": "none", "offload": "none"})
            try:
                given = estimate(model, profile, asked, strategy.degrees, strategy.secondary_degree)
            except InputError:
                continue  # no point of this engine's space
            yield f"{engine} {degrees_text(strategy)}", given


def degrees_text(strategy: Strategy) -> str:
    """Returns (p, g, o), with s where it is not p."""
    text = ",".join(str(degree) for degree in strategy.degrees)
    secondary = strategy.secondary_degree
    return text if secondary == strategy.param_degree else f"{text} s={secondary}"


def _default_config(stage: int, job: Job, profile: HardwareProfile, folder: Path) -> Path:
    micro_batch_size = job.micro_batch_size
    assert micro_batch_size is not None
    config = {
        "train_micro_batch_size_per_gpu": micro_batch_size,
        "gradient_accumulation_steps": job.global_batch_size // (micro_batch_size * profile.world_size),
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": stage},
        **({} if job.precision == "fp32" else {job.precision: {"enabled": True}}),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"default_stage_{stage}.json"
    path.write_text(json.dumps(config))
    return path


def _candidate(given: Plan, name: str, role: str, folder: Path) -> Candidate:
    target = folder / name.replace(" ", "_").replace(",", "_").replace("=", "")
    emit(given, target)
    return Candidate(name, role, given.engine, target, given.predicted.model_dump(mode="json"))
