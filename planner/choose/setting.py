"""What stays fixed while strategies are compared: model, machine, job, the legal steps and the memory budget."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costmodels.strategy import StepShape
from costmodels.workload import Workload
from hw_profiles.schema import HardwareProfile
from planner.choose.batches import batches
from planner.errors import InputError
from planner.job import Job
from planner.machine import Machine, machine
from planner.model_graph import ModelGraph
from planner.report.figures import bytes_text


@dataclass(frozen=True, slots=True)
class Setting:
    """A question that the planner can answer."""

    graph: ModelGraph
    profile: HardwareProfile
    machine: Machine
    job: Job
    shapes: tuple[StepShape, ...]
    """Every micro-batch that the job allows, smallest first."""
    budget_bytes: int

    @property
    def workload(self) -> Workload:
        """The traced step."""
        return self.graph.workload


def setting(graph: ModelGraph, profile: HardwareProfile, job: Job) -> Setting:
    """Returns the question that model, machine and job ask together.

    Raises:
        InputError: They do not go together: a batch that does not divide, another precision than was traced, a budget
            that the device has not.
    """
    for name, asked, traced in (
        ("precision", job.precision, graph.precision),
        ("device", profile.device.kind, graph.device),
        ("sequence length", job.sequence_length or graph.sequence_length, graph.sequence_length),
    ):
        if asked != traced:
            raise InputError(
                f"the model was traced with {name} {traced}, and the job asks for {asked}: trace the model again"
            )
    if graph.autocast is not None:
        raise InputError(
            f"the model was traced with weights of fp32 under autocast to {graph.autocast}, which the engines here do "
            f"not run yet: trace it again with --precision {graph.autocast}, whose weights have an fp32 master copy"
        )
    if job.offload == "optimizer" and profile.host is None:
        raise InputError(
            f"offload needs to know the host's memory and its link to the devices, and the profile of {profile.name} "
            "says nothing of it: make the profile again with `--like NAME`, or use --offload none"
        )
    device = profile.known_device
    if job.memory_budget_bytes is not None and job.memory_budget_bytes > device.memory_bytes:
        raise InputError(
            f"a memory budget of {bytes_text(job.memory_budget_bytes)} is more than {device.name} has: "
            f"{bytes_text(device.memory_bytes)} per rank; lower it, or plan for another machine"
        )
    return Setting(
        graph=graph,
        profile=profile,
        machine=(seen := machine(profile, job.precision, graph)),
        job=job,
        shapes=tuple(
            replace(shape, ranks_per_node=seen.ranks_per_node, level_sizes=seen.level_sizes)
            for shape in batches(job, seen.world_size, profile.device.kind)
        ),
        budget_bytes=job.memory_budget_bytes or seen.usable_bytes,
    )
