"""What DeepSpeed's stages 1 and 2 hold: flat parameters on every rank, one partition of the optimizer states.

Parameters lie in one flat buffer; a rank keeps an fp32 clone of its partition, in fp32 too. Gradients are copied into
a bucket as backward completes them (stage 2, or with overlap the last micro-batch of stage 1) or after backward
(stage 1); `memory_reduction` follows what happens to them then.

Source: deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8: `setup_buckets`, `average_tensor`,
`independent_gradient_partition_epilogue`, `step`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from costmodels.deepspeed.memory_accumulation import accumulation
from costmodels.deepspeed.memory_reduction import Kept, Reduced, Reduction
from costmodels.deepspeed.memory_sizes import NORM_BYTES, Sizes
from costmodels.deepspeed.reduce import FlatShards, arrivals
from costmodels.engine import Components, Course
from costmodels.states import FP32_BYTES


@dataclass(frozen=True)
class Partitioned:
    """Stage 1 or 2 of one workload."""

    sizes: Sizes

    @cached_property
    def kept(self) -> Kept:
        """What each rank keeps of the reduced gradients."""
        return Kept(self.sizes)

    @property
    def flat(self) -> FlatShards:
        """The flat buffer and its partitions."""
        return self.kept.flat

    @property
    def bucket_bytes(self) -> int:
        """Bytes of the buckets that stay allocated while gradients are gathered into them."""
        return self.sizes.width_bytes * self.sizes.num_buckets * self.sizes.knobs.reduce_bucket_size

    @cached_property
    def reducing(self) -> tuple[Course, Components]:
        """The course of each segment, and what its end holds, where backward reduces gradients as they are complete.

        In the worst micro-batch: stage 2 keeps one sum of earlier ones, to which the next is added when it is
        complete; the last one of stage 1 starts with all gradients, and moves them one by one into what is kept.
        """
        return _reducing(replace(self, sizes=self.sizes.of_gradients))


def at_rest(part: Partitioned) -> Components:
    """Returns the bytes between two steps."""
    sizes = part.sizes
    return Components(
        parameters=sizes.width_bytes * (part.flat.elements + sum(sizes.frozen)),
        optimizer_states=(FP32_BYTES + sizes.moments_bytes) * part.flat.shard,
    )


def during_segments(part: Partitioned) -> Course:
    """Returns the course of each segment, gradients and buckets, in the worst micro-batch."""
    sizes = part.sizes
    if sizes.knobs.stage == 2:
        return part.reducing[0]
    accumulating = accumulation(sizes, part.bucket_bytes)
    if not sizes.knobs.overlap_comm:
        return accumulating
    if sizes.shape.num_micro_batches == 1:
        return part.reducing[0]
    return Course(
        tuple(
            tuple(max(pair, key=lambda held: held.total_bytes) for pair in zip(before, last, strict=True))
            for before, last in zip(accumulating.segments, part.reducing[0].segments, strict=True)
        )
    )


@lru_cache(maxsize=32)
def _reducing(part: Partitioned) -> tuple[Course, Components]:
    """Reduction within backward: a bucket is sent when the next gradient does not fit, which waits meanwhile.

    The buckets are there from the first complete gradient on, in each micro-batch anew.
    """
    sizes = part.sizes
    accumulates, in_stage_2 = sizes.shape.num_micro_batches > 1, sizes.knobs.stage == 2
    kept_before_bytes = part.kept.most_bytes if accumulates and in_stage_2 and not part.kept.is_compact else 0
    left_bytes = sizes.width_bytes * sum(sizes.trainable) if accumulates and not in_stage_2 else 0
    reduction = Reduction(part.kept, left_bytes)
    order = (index for completed in sizes.completed for index in completed)
    sent_for = dict(arrivals(order, sizes.elements, sizes.knobs.reduce_bucket_size))
    found = []
    bucket_bytes = 0
    for completed, unfinished_bytes in zip(sizes.completed, sizes.unfinished_bytes, strict=True):
        beside_bytes = kept_before_bytes + unfinished_bytes
        course = [reduction.now.beside(beside_bytes, bucket_bytes)]
        bucket_bytes = part.bucket_bytes if completed else bucket_bytes
        for index in completed:
            arriving_bytes = sizes.width_bytes * sizes.elements[index]
            course.append(reduction.send(sent_for[index]).beside(arriving_bytes + beside_bytes, bucket_bytes))
            reduction.join(index)
            course.append(reduction.now.beside(beside_bytes, bucket_bytes))
        found.append(tuple(course))
    last = reduction.send(sent_for[None]).beside(kept_before_bytes, part.bucket_bytes)
    return Course(tuple(found)), last


def during_update(part: Partitioned) -> tuple[Components, ...]:
    """Returns the moments after backward: the last reduction, the norm, the fp32 gradients, the all-gather."""
    sizes = part.sizes
    shard = part.flat.shard
    largest_piece = max((min(number, shard) for number in sizes.trainable), default=0)
    norm_bytes = NORM_BYTES * largest_piece if sizes.knobs.compute_grad_norm else 0
    flat_bytes = 0 if part.kept.is_compact else sizes.update_gradient_bytes(shard)
    return (
        last_reduction(part),
        Components(gradients=part.kept.most_bytes, optimizer_step=norm_bytes),
        Components(gradients=part.kept.most_bytes, optimizer_step=flat_bytes),
        Components(optimizer_step=FP32_BYTES * shard),
        Components(buffers=sizes.gather_copies * sizes.width_bytes * part.flat.elements),
    )


def last_reduction(part: Partitioned) -> Components:
    """Returns what is left to reduce when backward has ended: the last bucket, or in stage 1 without overlap all."""
    sizes = part.sizes
    if sizes.knobs.stage == 2 or sizes.knobs.overlap_comm:
        return part.reducing[1]
    reduction = Reduction(part.kept, sizes.width_bytes * sum(sizes.trainable))
    worst = Reduced(0)
    for index, sent in arrivals(part.flat.begin, sizes.elements, sizes.knobs.reduce_bucket_size):
        worst = max(worst, reduction.send(sent), key=sum)
        if index is not None:
            reduction.join(index)
    return worst.beside(0, part.bucket_bytes)


def building_bytes(part: Partitioned) -> int:
    """Returns the greatest bytes while the engine is made of a model that is already in its precision.

    The flat buffer is filled beside the model; then a rank clones its partition and makes it fp32, and tries a
    gradient of that size.
    Source: `__init__` and `initialize_optimizer_states`, deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8.
    """
    sizes = part.sizes
    flat_bytes = sizes.width_bytes * part.flat.elements
    frozen_bytes = sizes.width_bytes * sum(sizes.frozen)
    partition_bytes = FP32_BYTES * part.flat.shard
    filling_bytes = sizes.width_bytes * sum(sizes.trainable) + flat_bytes
    return frozen_bytes + max(filling_bytes, flat_bytes + 2 * partition_bytes)
