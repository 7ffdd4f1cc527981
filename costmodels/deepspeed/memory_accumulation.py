"""Gradients as autograd leaves them in the parameters, where no reduction takes them away during backward."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from costmodels.deepspeed.memory_sizes import Sizes
from costmodels.engine import Components, Course


def accumulation(sizes: Sizes, bucket_bytes: int = 0) -> Course:
    """Returns the course of each segment (see `costmodels.engine.Course`), in the worst micro-batch.

    With several micro-batches all gradients are there from the first one on, and each that comes exists beside the
    older one for a moment; with one, each is taken over as it is. Buckets wait from the first complete gradient on.
    """
    # The number of ranks decides nothing here, so that all sizes of a machine share one answer.
    alone = replace(
        sizes.shape, world_size=1, ranks_per_node=None, num_micro_batches=min(2, sizes.shape.num_micro_batches)
    )
    knobs = replace(sizes.of_gradients.knobs, reduce_bucket_size=0, allgather_bucket_size=0)
    return _accumulation(Sizes(sizes.workload, knobs, alone), bucket_bytes)


@lru_cache(maxsize=16)
def _accumulation(sizes: Sizes, bucket_bytes: int) -> Course:
    accumulates = sizes.shape.num_micro_batches > 1
    held_bytes = sizes.width_bytes * sum(sizes.trainable) if accumulates else 0
    waiting_bytes = bucket_bytes if accumulates else 0
    found = []
    for completed, unfinished_bytes in zip(sizes.completed, sizes.unfinished_bytes, strict=True):
        course = [Components(gradients=held_bytes + unfinished_bytes, buffers=waiting_bytes)]
        for index in completed:
            arriving_bytes = sizes.width_bytes * sizes.elements[index]
            waiting_bytes = bucket_bytes
            course.append(Components(gradients=held_bytes + arriving_bytes + unfinished_bytes, buffers=waiting_bytes))
            held_bytes += 0 if accumulates else arriving_bytes
            course.append(Components(gradients=held_bytes + unfinished_bytes, buffers=waiting_bytes))
        found.append(tuple(course))
    return Course(tuple(found))
