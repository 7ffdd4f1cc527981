"""The micro-batches of a job: b x M x N = global batch, exactly or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from costmodels.degrees import divisors
from costmodels.strategy import StepShape
from planner.errors import BatchError
from planner.job import Job

MAX_SAMPLES = 2**16
"""Most samples per rank and optimizer step, far more than anyone trains with: above it a digit is wrong."""


def batches(job: Job, world_size: int, device: Literal["cuda", "cpu"]) -> tuple[StepShape, ...]:
    """Returns a step for every micro-batch that the job allows, smallest first.

    Raises:
        BatchError: The global batch is no multiple of micro-batch x ranks; names the nearest that are. Or it is more
            than `MAX_SAMPLES` per rank.
    """
    if job.global_batch_size > MAX_SAMPLES * world_size:
        raise BatchError(
            f"global batch {job.global_batch_size} is {job.global_batch_size / world_size:.6g} samples per rank on "
            f"{world_size} ranks, more than {MAX_SAMPLES}; use --global-batch-size {MAX_SAMPLES * world_size} or less"
        )
    unit = world_size * (job.micro_batch_size or 1)
    if job.global_batch_size % unit:
        raise BatchError(_refusal(job, world_size, unit))
    num_samples = job.global_batch_size // world_size
    sizes = divisors(num_samples) if job.micro_batch_size is None else (job.micro_batch_size,)
    return tuple(
        StepShape(world_size, size, num_samples // size, job.precision, job.optimizer, device) for size in sizes
    )


def check_batches(job: Job, world_sizes: Sequence[int], device: Literal["cuda", "cpu"]) -> None:
    """Checks that the job can be on one at least of several numbers of ranks.

    Raises:
        BatchError: It can be on none; the text is the first one's.
    """
    errors = []
    for world_size in world_sizes:
        try:
            batches(job, world_size, device)
        except BatchError as error:
            errors.append(error)
        else:
            return
    if errors:
        raise errors[0]


def nearest_batches(global_batch_size: int, unit: int) -> tuple[int, ...]:
    """Returns the multiples of `unit` just below and above a global batch that is none, without zero."""
    below = global_batch_size // unit * unit
    return (below, below + unit) if below else (unit,)


def _refusal(job: Job, world_size: int, unit: int) -> str:
    size = job.micro_batch_size
    nearest = " or ".join(str(batch) for batch in nearest_batches(job.global_batch_size, unit))
    equation = f"{job.global_batch_size} = {'b' if size is None else size} x M x {world_size}"
    remedy = f"use --global-batch-size {nearest}"
    if size is not None and job.global_batch_size % world_size == 0:
        num_samples = job.global_batch_size // world_size
        legal = ", ".join(str(divisor) for divisor in divisors(num_samples))
        remedy += f", or a micro-batch that divides {job.global_batch_size} / {world_size} = {num_samples}: {legal}"
    return (
        f"global batch {job.global_batch_size} does not divide: it must be micro-batch x M x {world_size} ranks, and "
        f"{equation} has no whole M (remainder {job.global_batch_size % unit} of {unit}); {remedy}"
    )
