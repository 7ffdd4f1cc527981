"""What a plan's folder keeps beside the files that run: what was planned from, so that it can be explained."""

from __future__ import annotations

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
from planner.plan import Plan

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
        InputError: no such folder, or its plan or graph is missing or damaged.
        ProfileError: the same of its machine.
    """
    return PlannedFolder(
        plan=read_plan(folder),
        graph=_read(folder / GRAPH_FILE, ModelGraph),
        profile=read_profile(folder / HARDWARE_FILE),
    )


def read_plan(folder: Path) -> Plan:
    """Returns the plan in a folder.

    Raises:
        InputError: no such folder, or its plan is missing or damaged.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give what `plan --out DIR` wrote")
    return _read(folder / PLAN_FILE, Plan)


def _read(path: Path, kind: type[_Value]) -> _Value:
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; plan again with --out") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its beginning"
        raise InputError(f"{path} is damaged, at {where}: {first['msg']}; plan again with --out") from error
