"""What a plan's folder keeps beside the files that run: what was planned from, so that it can be explained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from hw_profiles.load import read_profile
from hw_profiles.save import as_json
from hw_profiles.schema import HardwareProfile
from planner.errors import InputError
from planner.job import Job
from planner.model_graph import ModelGraph
from planner.plan import SCHEMA_VERSION, Plan

GRAPH_FILE = "graph.json"
HARDWARE_FILE = "hardware.json"
PLAN_FILE = "plan.json"

_Value = TypeVar("_Value", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class PlannedFolder:
    """A plan with the traced model and the machine that it is for."""

    plan: Plan
    graph: ModelGraph
    profile: HardwareProfile

    def job(self) -> Job:
        """Returns the job that another strategy for the same batch, numbers and budget has; its micro-batch is free."""
        job = self.plan.job
        return Job.model_validate(
            {
                "global_batch_size": job.global_batch_size,
                "sequence_length": job.sequence_length,
                "precision": job.precision,
                "optimizer": job.optimizer,
                "memory_budget_bytes": self.plan.predicted.memory.budget_bytes,
            }
        )


def planned_from(graph: ModelGraph, profile: HardwareProfile) -> Mapping[str, str]:
    """Returns the files, by name, that `read_folder` needs beside the plan."""
    return {
        GRAPH_FILE: graph.model_dump_json() + "\n",
        HARDWARE_FILE: as_json(profile),
    }


def read_folder(folder: Path) -> PlannedFolder:
    """Returns the plan in a folder, with what it was planned from.

    Raises:
        InputError: no such folder, or a file of it is missing, damaged, of another version or of another plan.
        ProfileError: its machine is damaged.
    """
    plan = read_plan(folder)
    for name in (GRAPH_FILE, HARDWARE_FILE):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder} has no {name}, which says what the plan was made from, so that it cannot be explained; plan "
                "again with --out"
            )
    planned = PlannedFolder(plan, _read(folder / GRAPH_FILE, ModelGraph), read_profile(folder / HARDWARE_FILE))
    _check_belongs(planned, folder)
    return planned


def _check_belongs(planned: PlannedFolder, folder: Path) -> None:
    """Checks that all files are of one plan: figures of one model explain no other."""
    plan, workload, profile = planned.plan, planned.graph.workload, planned.profile
    for name, what, mine, its in (
        (GRAPH_FILE, "parameters", plan.model.num_params, workload.num_params),
        (HARDWARE_FILE, "ranks", plan.hardware.world_size, profile.world_size),
    ):
        if mine != its:
            raise InputError(
                f"{folder / name} is not of this plan: it has {its:,} {what}, and {PLAN_FILE} {mine:,}; plan again "
                "with --out"
            )


def read_plan(folder: Path) -> Plan:
    """Returns the plan in a folder.

    Raises:
        InputError: no such folder, or its plan is missing or damaged.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give what `plan --out DIR` wrote")
    _check_version(folder / PLAN_FILE)
    return _read(folder / PLAN_FILE, Plan)


def _check_version(path: Path) -> None:
    """Refuses a plan of another version by its number: its keys would be called damaged. Unreadable ones pass."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    version = document.get("schema_version", SCHEMA_VERSION) if isinstance(document, dict) else SCHEMA_VERSION
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{path} is a plan of version {version!r}, and this is for version {SCHEMA_VERSION}: plan again with --out"
        )


def _read(path: Path, kind: type[_Value]) -> _Value:
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; plan again with --out") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its beginning"
        if first["type"] == "extra_forbidden":
            raise InputError(
                f"{path} has the key {where}, which this version does not know: a later one wrote it; plan again with "
                "--out"
            ) from error
        raise InputError(f"{path} is damaged, at {where}: {first['msg']}; plan again with --out") from error
