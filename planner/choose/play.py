"""Plays one choice through, in its engine's order."""

from __future__ import annotations

from costmodels.engine import Assignment, Engine
from costmodels.strategy import StepShape
from costmodels.workload import Workload
from planner.machine import Machine
from planner.simulate.simulate import simulate
from planner.simulate.timeline import Timeline


def play(workload: Workload, engine: Engine, machine: Machine, assignment: Assignment, shape: StepShape) -> Timeline:
    """Returns the timeline of one optimizer step of an engine.

    Args:
        workload: The traced step.
        engine: Whose order of messages it is.
        machine: Links and devices.
        assignment: One strategy per class of blocks.
        shape: Micro-batches, precision, optimizer.
    """
    return simulate(workload, engine.schedule(workload, assignment, shape), assignment, shape, machine)
