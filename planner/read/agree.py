"""Brings a job and a user's DeepSpeed configuration together, or says where they contradict each other."""

from __future__ import annotations

from planner.errors import InputError
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
        per_rank, rest = divmod(job.global_batch_size, count * world_size)
        if rest:
            raise InputError(
                f"global batch {job.global_batch_size} is no multiple of {count} micro-batches x {world_size} ranks"
            )
        micro_batch_size = per_rank
    if count is not None and micro_batch_size is not None:
        product = micro_batch_size * count * world_size
        if product != job.global_batch_size:
            raise InputError(
                f"the config's micro-batch {micro_batch_size} x {count} micro-batches x {world_size} ranks = {product} "
                f"is not the global batch {job.global_batch_size}: pass --global-batch-size {product}"
            )
    return job.model_copy(update={"micro_batch_size": micro_batch_size})
