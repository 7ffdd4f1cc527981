"""What DeepSpeed's stages 1 and 2 hold: flat parameters on every rank, one partition of the optimizer states.

Parameters lie in one flat buffer; a rank keeps an fp32 clone of its partition, in fp32 too. Gradients are copied into
a bucket as backward completes them (stage 2, or with overlap the last micro-batch of stage 1) or after backward
(stage 1); a reduction flattens the bucket once more. A rank then keeps whole the gradients that touch its partition.

Source: deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8: `setup_buckets`, `average_tensor`, `allreduce_bucket`,
`copy_grads_in_partition`, `independent_gradient_partition_epilogue`, `step`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from costmodels.deepspeed.memory_sizes import NORM_BYTES, Sizes
from costmodels.deepspeed.reduce import FlatShards, filled_buckets
from costmodels.engine import Components
from costmodels.states import FP32_BYTES

_OVERTAKING_BYTES = 32 * 1024**2
"""Measured on 2 busy cores (torch 2.13, 4 ranks): 5 MB overtake most times, 16 MB one time in four, 126 MB never."""


@dataclass(frozen=True)
class Partitioned:
    """Stage 1 or 2 of one workload."""

    sizes: Sizes

    @cached_property
    def flat(self) -> FlatShards:
        """The flat buffer and its partitions."""
        trainable = [index for index, parameter in enumerate(self.sizes.workload.parameters) if parameter.trainable]
        return FlatShards(self.sizes.elements, trainable, self.sizes.shape.world_size)

    @property
    def is_compact(self) -> bool:
        """Whether gradients accumulate in a flat fp32 partition.

        Source: `_use_compact_grad_partition_buffer`, deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8.
        """
        return self.sizes.accumulated_bytes > self.sizes.width_bytes

    @cached_property
    def kept_bytes(self) -> int:
        """Bytes of the reduced gradients that the fullest rank keeps of one micro-batch.

        Tensors are kept whole, so that a long one is kept by every rank that it reaches.
        """
        if self.is_compact:
            return self.sizes.accumulated_bytes * self.flat.shard
        held = [0] * self.sizes.shape.world_size
        for index, begin in self.flat.begin.items():
            elements = self.sizes.elements[index]
            last = max(begin, begin + elements - 1)
            for partition in range(begin // self.flat.shard, last // self.flat.shard + 1):
                held[partition] += elements
        return self.sizes.width_bytes * max(held, default=0)

    @property
    def is_kept_beside_flat(self) -> bool:
        """Whether what is kept is allocated before the first bucket's flat copy is given up.

        Under gloo the thread that reduced may hold the copy for some milliseconds on, while what is kept is copied
        back: small amounts overtake it, and the worst of several ranks and steps is counted. NCCL's copies are given
        up in the order of the stream.
        """
        return self.is_compact or (self.sizes.shape.device == "cpu" and self.kept_bytes < _OVERTAKING_BYTES)

    @property
    def bucket_bytes(self) -> int:
        """Bytes of the buckets that stay allocated while gradients are gathered into them."""
        return self.sizes.width_bytes * self.sizes.num_buckets * self.sizes.knobs.reduce_bucket_size

    def flushes(self, order: Iterable[int]) -> list[tuple[int, ...]]:
        """Returns the buckets into which gradients that come in this order are joined."""
        return list(filled_buckets(order, self.sizes.elements, self.sizes.knobs.reduce_bucket_size))

    def flattened_bytes(self, bucket: tuple[int, ...]) -> int:
        """Bytes of the flat copy that is reduced, of a bucket or of the part of a huge gradient sent at once."""
        elements = sum(self.sizes.elements[index] for index in bucket)
        return self.sizes.width_bytes * min(elements, self.sizes.knobs.reduce_bucket_size + self.flat.shard)


def at_rest(part: Partitioned) -> Components:
    """Returns the bytes between two steps."""
    sizes = part.sizes
    return Components(
        parameters=sizes.width_bytes * (part.flat.elements + sum(sizes.frozen)),
        optimizer_states=(FP32_BYTES + sizes.moments_bytes) * part.flat.shard,
    )


def during_segments(part: Partitioned) -> tuple[Components, ...]:
    """Returns gradients and buckets in each segment, in the worst micro-batch."""
    sizes = part.sizes
    if sizes.knobs.stage == 2:
        return _reducing(part, kept_before_bytes=_kept_before_bytes(part))
    all_bytes = sizes.width_bytes * sum(sizes.trainable)
    accumulating = _accumulating(part, all_bytes)
    if not sizes.knobs.overlap_comm:
        return accumulating
    reducing = _reducing(part, kept_before_bytes=0)
    if sizes.shape.num_micro_batches == 1:
        return reducing
    # The last micro-batch starts with all gradients and moves them, one by one, into what is kept.
    left_bytes = all_bytes
    found = []
    for before, last, completed_bytes in zip(accumulating, reducing, sizes.completed_bytes, strict=True):
        last += Components(gradients=left_bytes)
        left_bytes -= completed_bytes
        found.append(max(before, last, key=lambda held: held.total_bytes))
    return tuple(found)


def _kept_before_bytes(part: Partitioned) -> int:
    """What stage 2 keeps of earlier micro-batches: one sum, to which the next is added when it is complete."""
    return 0 if part.sizes.shape.num_micro_batches == 1 or part.is_compact else part.kept_bytes


def _reducing(part: Partitioned, kept_before_bytes: int) -> tuple[Components, ...]:
    """Reduction within backward: a bucket is sent when the next gradient does not fit, which waits meanwhile.

    What is kept is allocated when the first bucket has been reduced, beside the bucket's flat copy where that is given
    up late.
    """
    sizes = part.sizes
    flushed = part.flushes(index for completed in sizes.completed for index in completed)
    # A bucket goes when the first gradient of the next one is complete; the last one after backward.
    sent_at = {following[0]: bucket for bucket, following in pairwise(flushed)}
    kept_bytes = part.kept_bytes if part.is_compact and sizes.shape.num_micro_batches > 1 else 0
    found = []
    for number, completed in enumerate(sizes.completed):
        sent = [sent_at[index] for index in completed if index in sent_at]
        arriving_bytes = kept_before_bytes + sizes.arriving_bytes[number]
        bucket_bytes = part.bucket_bytes if number in sizes.bucket_segments else 0
        moments = [Components(gradients=kept_bytes + arriving_bytes, buffers=bucket_bytes)]
        for bucket in sent:
            before_bytes = part.kept_bytes if part.is_kept_beside_flat else kept_bytes
            flat_bytes = part.flattened_bytes(bucket)
            moments.append(Components(gradients=before_bytes + arriving_bytes, buffers=bucket_bytes + flat_bytes))
            kept_bytes = part.kept_bytes
            moments.append(Components(gradients=kept_bytes + arriving_bytes, buffers=bucket_bytes))
        found.append(max(moments, key=lambda held: held.total_bytes))
    return tuple(found)


def _accumulating(part: Partitioned, all_bytes: int) -> tuple[Components, ...]:
    """Stage 1 without a reduction: gradients as autograd leaves them, beside buckets that wait from the first on."""
    sizes = part.sizes
    accumulates = sizes.shape.num_micro_batches > 1
    found = []
    so_far_bytes = 0
    for number, completed_bytes in enumerate(sizes.completed_bytes):
        so_far_bytes += completed_bytes
        arriving_bytes = sizes.arriving_bytes[number]
        held_bytes = all_bytes + arriving_bytes if accumulates else max(so_far_bytes, arriving_bytes)
        waits = accumulates or number in sizes.bucket_segments
        found.append(Components(gradients=held_bytes, buffers=part.bucket_bytes if waits else 0))
    return tuple(found)


def during_update(part: Partitioned) -> tuple[Components, ...]:
    """Returns the moments after backward: the last reduction, the norm, the fp32 gradients, the all-gather."""
    sizes = part.sizes
    shard = part.flat.shard
    largest_piece = max((min(number, shard) for number in sizes.trainable), default=0)
    norm_bytes = NORM_BYTES * largest_piece if sizes.knobs.compute_grad_norm else 0
    flat_bytes = 0 if part.is_compact else sizes.update_gradient_bytes(shard)
    return (
        _last_reduction(part),
        Components(gradients=part.kept_bytes, optimizer_step=norm_bytes),
        Components(gradients=part.kept_bytes, optimizer_step=flat_bytes),
        Components(optimizer_step=FP32_BYTES * shard),
        Components(buffers=sizes.gather_copies * sizes.width_bytes * part.flat.elements),
    )


def _last_reduction(part: Partitioned) -> Components:
    """What remains to be reduced when backward has ended: the last bucket, or in stage 1 without overlap all."""
    sizes = part.sizes
    if sizes.knobs.stage == 1 and not sizes.knobs.overlap_comm:
        return _reduction_of_all(part)
    flushed = part.flushes(index for completed in sizes.completed for index in completed)
    last_bytes = part.flattened_bytes(flushed[-1]) if flushed else 0
    kept_bytes = part.kept_bytes if part.is_kept_beside_flat or len(flushed) > 1 else 0
    return Components(
        gradients=(_kept_before_bytes(part) if sizes.knobs.stage == 2 else 0) + kept_bytes,
        buffers=part.bucket_bytes + last_bytes,
    )


def _reduction_of_all(part: Partitioned) -> Components:
    """The worst bucket of stage 1's reduction: gradients move into the bucket, and from there into what is kept."""
    sizes = part.sizes
    left_bytes = sizes.width_bytes * sum(sizes.trainable)
    kept_bytes = part.kept_bytes if part.is_kept_beside_flat else 0
    worst = Components()
    for bucket in part.flushes(part.flat.begin):
        filled = sum(sizes.elements[index] for index in bucket)
        if filled <= sizes.knobs.reduce_bucket_size:
            left_bytes -= sizes.width_bytes * filled
        held = Components(gradients=left_bytes + kept_bytes, buffers=part.bucket_bytes + part.flattened_bytes(bucket))
        worst = max(worst, held, key=lambda candidate: candidate.total_bytes)
        kept_bytes = part.kept_bytes
    return worst


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
