"""Says why nothing fits, in numbers, and what would help."""

from __future__ import annotations

from dataclasses import replace

from hw_profiles.schema import HardwareProfile
from planner.choose.candidate import Candidate, as_alternative
from planner.choose.setting import Setting
from planner.choose.suggestions import Smallest, suggestions
from planner.errors import InputError
from planner.job import Job
from planner.machine import machine
from planner.model_graph import ModelGraph
from planner.plan import Infeasible
from planner.report.figures import bytes_text


def infeasible(asked: Setting, smallest: Smallest) -> Infeasible:
    """Returns how far the nearest strategy is from fitting, and what would make one fit.

    Args:
        asked: The question that has no answer.
        smallest: Finds the strategy of least memory; called for every suggestion that is checked.
    """
    nearest = smallest(asked)
    needed_bytes = nearest.predicted.memory.peak_bytes
    return Infeasible(
        model_name=asked.graph.name,
        hardware_name=asked.profile.name,
        world_size=asked.machine.world_size,
        needed_bytes=needed_bytes,
        available_bytes=asked.budget_bytes,
        nearest=as_alternative(nearest, _verdict(asked, nearest)),
        suggestions=tuple(suggestions(asked, needed_bytes, smallest)),
    )


def illegal(graph: ModelGraph, profile: HardwareProfile, job: Job, error: InputError) -> Infeasible:
    """Returns that no step is possible on this machine, whatever the devices' memory: nothing is needed of it."""
    return Infeasible(
        model_name=graph.name,
        hardware_name=profile.name,
        world_size=profile.world_size,
        needed_bytes=0,
        available_bytes=job.memory_budget_bytes or machine(profile, job.precision).usable_bytes,
        nearest=None,
        suggestions=(),
        reason=str(error),
    )


def message(found: Infeasible) -> str:
    """Returns the text for people: how much is needed, what there is, what to try."""
    if found.nearest is None:
        return found.reason or "no step is legal"
    lines = [
        f"nothing fits: {found.model_name} on {found.world_size} ranks of {found.hardware_name} needs "
        f"{bytes_text(found.needed_bytes)} per rank at least, and {bytes_text(found.available_bytes)} are available",
        f"nearest: {found.nearest.name} at micro-batch {found.nearest.micro_batch_size}, {found.nearest.verdict}",
    ]
    lines += [f"try: {suggestion}" for suggestion in found.suggestions]
    return "\n".join(lines)


def _verdict(asked: Setting, nearest: Candidate) -> str:
    memory = nearest.predicted.memory
    amounts = [(name.replace("_", " "), amount) for name, amount in memory.components if amount]
    sums = " + ".join(f"{name} {bytes_text(amount)}" for name, amount in amounts)
    over_bytes = memory.peak_bytes - asked.budget_bytes
    return f"{sums} = {bytes_text(memory.peak_bytes)} ({memory.peak_phase}), {bytes_text(over_bytes)} too much"


def at_smallest_batch(asked: Setting) -> Setting:
    """Returns the question with its smallest micro-batch alone: where least memory is needed."""
    return replace(asked, shapes=asked.shapes[:1])
