"""Looks at a choice with something about it changed: whether it fits, and what it would do then."""

from __future__ import annotations

from dataclasses import replace

from costmodels.engine import Assignment, Engine
from costmodels.memory import moments_bytes
from costmodels.workload import Workload
from planner.choose.candidate import Candidate
from planner.choose.setting import Setting
from planner.evaluate import evaluate


def changed(
    asked: Setting, engine: Engine, chosen: Candidate, assignment: Assignment, workload: Workload | None = None
) -> Candidate:
    """Returns a choice with other strategies, or on an engine with other settings, and its exact prediction.

    Args:
        asked: Model, machine and job.
        engine: That of the choice, with the settings it has now.
        chosen: What is changed.
        assignment: One strategy for each class of blocks.
        workload: With the classes of the assignment; None: those of the choice.
    """
    workload = workload or chosen.workload
    fixed = (assignment, chosen.shape, asked.budget_bytes, asked.graph.sequence_length)
    predicted = evaluate(workload, engine, asked.machine, *fixed)
    return replace(chosen, workload=workload, assignment=assignment, predicted=predicted)


def would_fit(
    asked: Setting, engine: Engine, chosen: Candidate, assignment: Assignment, workload: Workload | None = None
) -> bool:
    """Returns whether the engine can run that within the budget; the arguments as for `changed`, without its time."""
    peak_bytes = peak_bytes_of(engine, chosen, assignment, workload)
    return peak_bytes is not None and peak_bytes <= asked.budget_bytes


def peak_bytes_of(
    engine: Engine, chosen: Candidate, assignment: Assignment, workload: Workload | None = None
) -> int | None:
    """Returns the bytes of device memory at the step's peak; None where the engine refuses; arguments as before."""
    workload = workload or chosen.workload
    if engine.refusal(workload, assignment, chosen.shape) is not None:
        return None
    held = engine.memory(workload, assignment, chosen.shape)
    return int(moments_bytes(workload, held, assignment, chosen.shape).max())
