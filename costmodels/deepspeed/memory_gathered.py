"""What DeepSpeed's stage 3 holds, with or without a secondary partition (hpZ).

Every tensor is cut into N shards. At rest a rank keeps its shards in the model's precision, an fp32 clone of them (in
fp32 too), a flat buffer of their gradients, and one reduction bucket. In a step it also holds what is gathered: what
the coordinator keeps, the flat buffer of a joined all-gather beside the parameters copied out of it, and after the
first use of each parameter its secondary shard.

Source: deepspeed/runtime/zero/stage3.py and partition_parameters.py, 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from costmodels.deepspeed.frozen_inputs import frozen_input_bytes
from costmodels.deepspeed.gather import MicroBatch, gathers, persistent_parameters
from costmodels.deepspeed.hooks import hooks
from costmodels.deepspeed.memory_sizes import NORM_BYTES, Sizes
from costmodels.deepspeed.reduce import arrivals
from costmodels.deepspeed.saved_views import saved_view_elements
from costmodels.engine import Assignment, Components, Course
from costmodels.places import Int64s
from costmodels.states import FP32_BYTES, shard_elements
from costmodels.strategy import Strategy


@dataclass(frozen=True)
class Gathered:
    """Stage 3 of one workload."""

    sizes: Sizes
    assignment: Assignment

    @cached_property
    def micro_batches(self) -> tuple[MicroBatch, ...]:
        """What a steady step gathers: its first micro-batch and the further ones."""
        num_micro_batches = min(self.sizes.shape.num_micro_batches, 2)
        order = hooks(self.sizes.workload, self.assignment, self.sizes.knobs)
        return gathers(self.sizes.workload, order, self.sizes.knobs, num_micro_batches)

    @cached_property
    def shard_elements(self) -> int:
        """Elements of a rank's shards of the trainable parameters."""
        return self.sizes.shards(self.sizes.trainable)

    @cached_property
    def persistent(self) -> tuple[int, ...]:
        """Indices of the parameters that stay gathered beside their shards."""
        return persistent_parameters(self.sizes.workload, self.sizes.knobs)

    def secondary_bytes(self, parameters: Iterable[int]) -> int:
        """Bytes of their secondary shards.

        Trainable ones are given up at each update, and made anew in the next forward.
        Source: `_partition_param_sec`, deepspeed/runtime/zero/partition_parameters.py, and
        `invalidate_secondary_tensor`, deepspeed/runtime/zero/stage3.py, 0.19.8.
        """
        if self.sizes.knobs.hpz_partition_size == 1:
            return 0
        return int(self.secondary_of_each[list(parameters)].sum())

    @cached_property
    def secondary_of_each(self) -> Int64s:
        """Bytes of the secondary shard of each parameter; none of those that persist."""
        world_size, degree = self.sizes.shape.world_size, self.sizes.knobs.hpz_partition_size
        shards = -(-np.array(self.sizes.elements, np.int64) // world_size) * (world_size // degree)
        shards[list(self.persistent)] = 0
        return self.sizes.width_bytes * shards

    def indices(self, trainable: bool) -> tuple[int, ...]:
        """Indices of the trainable parameters, or of the frozen ones."""
        return tuple(i for i, p in enumerate(self.sizes.workload.parameters) if p.trainable == trainable)

    @property
    def largest_group_elements(self) -> int:
        """Elements of the largest group of shards that is updated at once.

        Source: `_create_fp16_sub_groups`, deepspeed/runtime/zero/stage3.py, 0.19.8.
        """
        return _largest_group(self.sizes.trainable, self.sizes.shape.world_size, self.sizes.knobs.sub_group_size)

    def reduced_bytes(self, bucket: Iterable[int]) -> int:
        """Bytes made to reduce a bucket: its gradients cut and interleaved by rank, and gloo's copy of that.

        Source: `reduce_scatter_coalesced`, deepspeed/runtime/comm/coalesced_collectives.py, 0.19.8.
        """
        world_size = self.sizes.shape.world_size
        elements = [self.sizes.elements[index] for index in bucket]
        padded = sum(shard_elements(number, world_size) * world_size for number in elements)
        in_place = len(elements) == 1 and elements[0] % world_size == 0
        return self.sizes.width_bytes * padded * (self.sizes.gather_copies + (0 if in_place else 1))

    @cached_property
    def reducing(self) -> tuple[Course, Components]:
        """The course of gradients and reductions in each segment, and those of the last bucket at the end."""
        return _reducing(replace(self, sizes=self.sizes.of_gradients, assignment=()))

    @cached_property
    def frozen_input_bytes(self) -> tuple[tuple[int, int], ...]:
        """Of each segment, the inputs of frozen linear maps that are kept as it begins, and at its peak."""
        sizes = self.sizes
        return frozen_input_bytes(sizes.workload, self.assignment, sizes.shape.micro_batch_size)

    @cached_property
    def saved_view_bytes(self) -> tuple[int, ...]:
        """Of each segment, the memory of released parameters that saved views keep."""
        elements = saved_view_elements(self.sizes.workload, self.assignment, self.micro_batches)
        return tuple(self.sizes.width_bytes * each for each in elements)

    @property
    def bucket_bytes(self) -> int:
        """Bytes of the one bucket, allocated once; `overlap_comm` does not double it."""
        knobs = self.sizes.knobs
        return self.sizes.width_bytes * knobs.reduce_bucket_size if knobs.contiguous_gradients else 0


@lru_cache(maxsize=64)
def _largest_group(trainable: tuple[int, ...], world_size: int, sub_group_size: int) -> int:
    largest = group = 0
    for elements in trainable:
        group += shard_elements(elements, world_size)
        largest = max(largest, group)
        if group >= sub_group_size:
            group = 0
    return largest


def at_rest(part: Gathered) -> Components:
    """Returns the bytes between two steps."""
    sizes = part.sizes
    persistent_elements = sum(sizes.elements[index] for index in part.persistent)
    elements = part.shard_elements + sizes.shards(sizes.frozen) + persistent_elements
    return Components(
        parameters=sizes.width_bytes * elements + part.secondary_bytes(part.indices(trainable=False)),
        gradients=sizes.accumulated_bytes * part.shard_elements,
        optimizer_states=(FP32_BYTES + sizes.moments_bytes) * part.shard_elements,
        buffers=part.bucket_bytes,
    )


@dataclass(frozen=True, slots=True)
class OfSegments:
    """What is held while a segment runs, gradients apart: gathered parameters, inputs of frozen linear maps.

    In the worst micro-batch; what is gathered is the most of the segment throughout.
    """

    throughout: tuple[Components, ...] = ()
    """When activations are at their peak: an all-gather of an earlier segment has ended and given up its copy."""
    entering: tuple[Components, ...] = ()
    """As it begins: all-gathers may still run that began in an earlier one."""


def of_segments(part: Gathered) -> OfSegments:
    """Returns what is held in each segment beside gradients and their reductions."""
    sizes = part.sizes
    # Without a secondary partition the number of ranks decides nothing, and elsewhere only it, so that all sizes of a
    # machine, and strategies that differ in what else they do, share one answer.
    shape = sizes.shape if sizes.knobs.hpz_partition_size > 1 else replace(sizes.shape, world_size=1)
    knobs = replace(
        sizes.knobs, reduce_bucket_size=0, sub_group_size=0, quantized_weights=False, quantized_gradients=False
    )
    recomputed = tuple(Strategy(1, 1, 1, 1, strategy.recompute) for strategy in part.assignment)
    return _of_segments(Gathered(Sizes(sizes.workload, knobs, shape), recomputed))


@lru_cache(maxsize=64)
def _of_segments(part: Gathered) -> OfSegments:
    throughout, entering = _window_bytes(part)
    held = zip(throughout, entering, part.saved_view_bytes, part.frozen_input_bytes, strict=True)
    found = [
        (
            Components(gathered_parameters=throughout_bytes + view_bytes, activations=at_peak_bytes),
            Components(gathered_parameters=entering_bytes + view_bytes, activations=before_bytes),
        )
        for throughout_bytes, entering_bytes, view_bytes, (before_bytes, at_peak_bytes) in held
    ]
    return OfSegments(tuple(each for each, _ in found), tuple(each for _, each in found))


def during_segments(part: Gathered) -> Course:
    """Returns the course of each segment: gradients that come, and reductions."""
    return part.reducing[0]


def _window_bytes(part: Gathered) -> tuple[list[int], list[int]]:
    """Returns the bytes of gathered parameters throughout each segment, and as it begins.

    The buffers in which they arrive are included, and secondary shards.
    """
    width_bytes, gather_copies = part.sizes.width_bytes, part.sizes.gather_copies
    num_segments = len(part.sizes.workload.segments)
    trained = frozenset(part.indices(trainable=True))
    found = np.zeros((2, num_segments), np.int64)
    for micro_batch in part.micro_batches:
        windows = micro_batch.windows
        window = np.zeros_like(found)
        for bytes_of, late in zip(window, (windows.begun, windows.arriving), strict=True):
            np.maximum.at(bytes_of, windows.segments, width_bytes * (windows.held + gather_copies * late))
        made = np.zeros(num_segments, np.int64)
        for number, parameter in micro_batch.made_secondary if part.sizes.knobs.hpz_partition_size > 1 else ():
            made[number] += part.secondary_of_each[parameter] if parameter in trained else 0
        there_bytes = part.secondary_bytes(trained.intersection(micro_batch.with_secondary))
        found = np.maximum(found, window + np.cumsum(made) + there_bytes)
    throughout, entering = found.tolist()
    return throughout, entering


@lru_cache(maxsize=32)
def _reducing(part: Gathered) -> tuple[Course, Components]:
    """Returns the course of gradients and reductions in each segment, and those of the last bucket at the end.

    A gradient larger than the bucket is not copied into it: it waits, for the next one or the end, where it is.
    """
    sizes = part.sizes
    order = (index for completed in sizes.completed for index in completed)
    sent_for = dict(arrivals(order, sizes.elements, sizes.knobs.reduce_bucket_size))
    found = []
    waiting_bytes = 0
    for completed, unfinished_bytes in zip(sizes.completed, sizes.unfinished_bytes, strict=True):
        moments = [Components(gradients=waiting_bytes + unfinished_bytes)]
        for index in completed:
            arriving_bytes = unfinished_bytes + sizes.width_bytes * sizes.elements[index]
            reduced_bytes = part.reduced_bytes(sent_for[index])
            moments.append(Components(gradients=waiting_bytes + arriving_bytes, buffers=reduced_bytes))
            waiting_bytes = 0 if sent_for[index] else waiting_bytes
            waiting_bytes += sizes.width_bytes * sizes.elements[index] if sizes.waits(index) else 0
            moments.append(Components(gradients=waiting_bytes + unfinished_bytes))
        found.append(tuple(moments))
    return Course(tuple(found)), Components(gradients=waiting_bytes, buffers=part.reduced_bytes(sent_for[None]))


def during_update(part: Gathered) -> tuple[Components, ...]:
    """Returns the moments after backward: the last reduction, the norm, the fp32 gradients of one group of shards."""
    sizes = part.sizes
    # The last gradient starts the last reduction, before the module that it belongs to releases its parameters.
    left_elements = max((int(held) for batch in part.micro_batches for held in batch.windows.held[-1:]), default=0)
    _, reduction = part.reducing
    largest_shard = max((shard_elements(number, sizes.shape.world_size) for number in sizes.trainable), default=0)
    group_bytes = sizes.update_gradient_bytes(part.largest_group_elements)
    secondary_bytes = part.secondary_bytes(part.indices(trainable=True))
    return (
        reduction + Components(gathered_parameters=secondary_bytes + sizes.width_bytes * left_elements),
        Components(gathered_parameters=secondary_bytes, optimizer_step=NORM_BYTES * largest_shard),
        Components(gathered_parameters=secondary_bytes, optimizer_step=group_bytes),
    )


def building_bytes(part: Gathered) -> int:
    """Returns the greatest bytes while a model that is sharded as it is made (`zero.Init`) becomes an engine.

    Each parameter is whole when it is given its weights, beside the shards so far. Then fp32 clones are made of the
    shards, the last group of them beside its conversion. Last, each trainable parameter is gathered on its own for its
    hooks, beside all that is held at rest but the optimizer's own states, and beside the secondary shards.
    Source: `_create_fp16_partitions_with_defragmentation`, `_create_fp32_partitions` and
    `create_reduce_and_remove_grad_hooks`, deepspeed/runtime/zero/stage3.py, 0.19.8.
    """
    sizes = part.sizes
    rest = at_rest(part)
    held_bytes = rest.total_bytes - sizes.moments_bytes * part.shard_elements
    held_bytes += part.secondary_bytes(part.indices(trainable=True))
    gathered_bytes = sizes.width_bytes * gathered_one_by_one(part)
    cloning_bytes = rest.parameters + FP32_BYTES * (part.shard_elements + part.largest_group_elements)
    return max(placing_bytes(part), cloning_bytes, held_bytes + gathered_bytes)


def placing_bytes(part: Gathered) -> int:
    """Returns the bytes while parameters are given their weights: a whole one beside the shards so far, and its own."""
    elements = np.array(part.sizes.elements, np.int64)
    own_bytes = part.sizes.width_bytes * -(-elements // part.sizes.shape.world_size)
    if part.sizes.knobs.hpz_partition_size > 1:
        own_bytes += part.secondary_of_each
    return int((np.cumsum(own_bytes) + part.sizes.width_bytes * elements).max(initial=0))


def gathered_one_by_one(part: Gathered) -> int:
    """Returns the elements of the largest parameter with its copy, and of one before it what gloo gives up late."""
    copies = part.sizes.gather_copies
    persistent = frozenset(part.persistent)
    found = before = 0
    for index in part.indices(trainable=True):
        elements = part.sizes.elements[index]
        found = max(found, elements * (1 + copies) + before * copies)
        before = before if index in persistent else elements
    return found
