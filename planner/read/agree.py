"""Brings a job and a user's DeepSpeed configuration together, or says where they contradict each other."""

from __future__ import annotations

from planner.choose.batches import nearest_batches
from planner.errors import BatchError, InputError
from planner.job import Job
from planner.read.given_config import GivenConfig


def agree(job: Job, given: GivenConfig, world_size: int) -> Job:
    """Returns the job with the micro-batch that the configuration gives.

    Raises:
        InputError: Another precision, optimizer or batch than the job's; the text has the equation in numbers.
    """
    for name, asked, written in (
        ("precision", job.precision, given.precision),
        ("optimizer", job.optimizer, given.optimizer),
        ("micro-batch-size", job.micro_batch_size, given.micro_batch_size),
        ("global-batch-size", job.global_batch_size, given.global_batch_size),
    ):
        if None not in (asked, written) and asked != written:
            raise InputError(f"the config says {name} {written}, the job {asked}: pass --{name} {written}")
    micro_batch_size = given.micro_batch_size or job.micro_batch_size
    count = given.num_micro_batches
    if count is not None and micro_batch_size is None:
        micro_batch_size, rest = divmod(job.global_batch_size, count * world_size)
        if rest:
            raise BatchError(_refusal(job.global_batch_size, "b", count, world_size, count * world_size))
    if count is not None and micro_batch_size is not None:
        product = micro_batch_size * count * world_size
        if product != job.global_batch_size:
            unit = micro_batch_size * world_size
            raise BatchError(
                f"{_refusal(job.global_batch_size, str(micro_batch_size), count, world_size, unit)}; the config's own "
                f"factors make {product}"
            )
    return job.model_copy(update={"micro_batch_size": micro_batch_size})


def _refusal(batch: int, size: str, count: int, world_size: int, unit: int) -> str:
    nearest = " or ".join(str(each) for each in nearest_batches(batch, unit))
    return (
        f"global batch {batch} is not micro-batch x gradient_accumulation_steps x ranks: {batch} != {size} x {count} x "
        f"{world_size}; the nearest that {unit} divides are {nearest}: write train_batch_size and pass "
        "--global-batch-size"
    )
