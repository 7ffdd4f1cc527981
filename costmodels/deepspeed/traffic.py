"""What DeepSpeed sends in one steady optimizer step: every message with its full size, its group and its cause.

Checked byte for byte and message for message against the recorder of `runtime.record_traffic`, for stages 0 to 3
and hpZ. A steady step is any after the first: DeepSpeed learns the order of modules in the first micro-batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from costmodels.deepspeed.gather import Gather, MicroBatch, gathers, persistent_parameters
from costmodels.deepspeed.hooks import hooks
from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.quantized_gather import padded_elements, quantized_of_gather
from costmodels.deepspeed.reduce import FlatShards, engine_buckets, filled_buckets, flat_shards, gradient_order
from costmodels.engine import Assignment, Cause, Message, Operation
from costmodels.quantized import QuantizedMessage, converted_bytes, quantized_reduce
from costmodels.strategy import Precision, StepShape
from costmodels.workload import Phase, Workload

BYTES_PER_ELEMENT: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}

_NORM_BYTES = 4
"""Stages 1 and 2 all-reduce the squared gradient norm in fp32. Source: `get_grad_norm_direct`, stage_1_and_2.py."""
_STAGE_3_NORM_BYTES = 8
"""Stage 3 in fp64, per sub-group; with offload in fp32. Source: `get_norm_dtype`, deepspeed/runtime/zero/utils.py, and
`complete_grad_norm_calculation_for_cpu_offload`, deepspeed/runtime/zero/stage3.py."""
_FLAG_BYTES = 1
"""The overflow flag, a byte. Source: `has_overflow`, stage_1_and_2.py and stage3.py."""


class Sent(NamedTuple):
    """A kind of message, as `Message` has it."""

    operation: Operation
    degree_from: int
    degree_to: int
    message_bytes: int
    cause: Cause
    converted_bytes: int = 0


def traffic(workload: Workload, assignment: Assignment, shape: StepShape, knobs: Knobs) -> tuple[Message, ...]:
    """Returns the messages of one rank in one steady optimizer step, sorted.

    Args:
        workload: The traced step; its forward calls give the order of gathers.
        assignment: One strategy per class; only `recompute` and `offload` are read, the degrees are in `knobs`.
        shape: World size, number of micro-batches and precision.
        knobs: DeepSpeed's settings.
    """
    if shape.world_size == 1 or workload.num_trainable_params == 0:
        return ()
    if knobs.stage == 0:
        sent = Counter(dict(_unsharded(workload, shape.world_size, BYTES_PER_ELEMENT[shape.precision])))
    elif knobs.stage < 3:
        sent = _flat(workload, shape, knobs)
    else:
        sent = _partitioned(workload, assignment, shape, knobs)
    return tuple(as_message(kind, count, knobs) for kind, count in sorted(sent.items()))


def as_message(kind: Sent, count: int, knobs: Knobs) -> Message:
    """Returns `count` equal messages of a kind."""
    beside_backward = kind.cause == "boundary" and knobs.overlap_comm and knobs.stage > 0
    return Message(*kind[:4], count, kind.cause, beside_backward, converted_bytes=kind.converted_bytes)


_Counts = tuple[tuple[Sent, int], ...]
"""Kinds of messages with their numbers."""


@lru_cache(maxsize=16)
def _unsharded(workload: Workload, world_size: int, width: int) -> _Counts:
    """Stage 0: one all-reduce of all gradients at the last micro-batch's end."""
    trained = zip(workload.elements, workload.parameters, strict=True)
    buckets = engine_buckets(number for number, parameter in trained if parameter.trainable)
    sent = Counter(Sent("all_reduce", 1, world_size, sum(bucket) * width, "boundary") for bucket in buckets)
    return tuple(sent.items())


def _flat(workload: Workload, shape: StepShape, knobs: Knobs) -> Counter[Sent]:
    """Stages 1 and 2: gradients are all-reduced, not reduce-scattered; updated parameters are gathered at once.

    Stage 1 reduces once per step, in the order of parameters, or of gradients with `overlap_comm`. Stage 2 reduces in
    every micro-batch.
    """
    world, width = shape.world_size, BYTES_PER_ELEMENT[shape.precision]
    times = shape.num_micro_batches if knobs.stage == 2 else 1
    one = replace(shape, micro_batch_size=1, num_micro_batches=1)
    sent = Counter({kind: count * times for kind, count in _flat_reductions(workload, one, knobs)})
    if _checks_overflow(shape, knobs):
        sent[Sent("all_reduce", 1, world, _FLAG_BYTES, "control")] += 1
    if knobs.compute_grad_norm:
        sent[Sent("all_reduce", 1, world, _NORM_BYTES, "control")] += 1
    sent[Sent("all_gather", 1, world, flat_shards(workload, world).elements * width, "update")] += 1
    return sent


@lru_cache(maxsize=32)
def _flat_reductions(workload: Workload, shape: StepShape, knobs: Knobs) -> _Counts:
    """Returns what stages 1 and 2 send each time that they reduce."""
    shards = flat_shards(workload, shape.world_size)
    order = gradient_order(workload, knobs)
    if knobs.stage == 1 and not knobs.overlap_comm:
        order = tuple(sorted(order))
    buckets = filled_buckets(order, list(workload.elements), knobs.reduce_bucket_size)
    sent = Counter(each for bucket in buckets for each in flat_bucket_messages(bucket, shards, shape, knobs))
    return tuple(sent.items())


def flat_bucket_messages(bucket: tuple[int, ...], shards: FlatShards, shape: StepShape, knobs: Knobs) -> Iterator[Sent]:
    """Yields what stages 1 and 2 send for the gradients of one bucket."""
    cause: Cause = "backward" if knobs.stage == 2 else "boundary"
    for operation, pieces in shards.messages(bucket, knobs):
        yield Sent(operation, 1, shape.world_size, sum(pieces) * BYTES_PER_ELEMENT[shape.precision], cause)


def _checks_overflow(shape: StepShape, knobs: Knobs) -> bool:
    return shape.precision == "fp16" or (shape.precision == "bf16" and knobs.check_grad_overflow)


def _partitioned(workload: Workload, assignment: Assignment, shape: StepShape, knobs: Knobs) -> Counter[Sent]:
    """Stage 3: every parameter is padded to a multiple of N and gathered with what its module or prefetch joins."""
    world, width = shape.world_size, BYTES_PER_ELEMENT[shape.precision]
    sent: Counter[Sent] = Counter()
    # Equal micro-batches are one object, and are counted together: M can be in the hundreds.
    order = hooks(workload, assignment, knobs)
    for _, equal in groupby(gathers(workload, order, knobs, shape.num_micro_batches), key=id):
        micro_batch, *others = equal
        for gather, count in _kinds_of_gathers(micro_batch, workload):
            for message in gather_messages(gather, workload, shape, knobs):
                sent[message] += count * (1 + len(others))
    for bucket, count in _kinds_of_buckets(workload, gradient_order(workload, knobs), knobs.reduce_bucket_size):
        for reduced in bucket_messages(bucket, workload, shape, knobs):
            sent[reduced] += count * shape.num_micro_batches
    if shape.precision == "fp16":
        sent[Sent("all_reduce", 1, world, _FLAG_BYTES, "control")] += 1
    padded = [-(-number // world) * world for number in workload.elements]
    norm_bytes = _STAGE_3_NORM_BYTES if assignment[0].offload == "none" else _NORM_BYTES
    norm = Sent("all_reduce", 1, world, norm_bytes, "control")
    sent[norm] += _num_sub_groups(workload, padded, world, knobs)
    kept = Counter(padded[parameter] for parameter in persistent_parameters(workload, knobs))
    for number, count in kept.items():
        sent[Sent("all_gather", 1, world, number * width, "update")] += count
    return sent


@lru_cache(maxsize=64)
def _kinds_of_gathers(micro_batch: MicroBatch, workload: Workload) -> tuple[tuple[Gather, int], ...]:
    """Returns the gathers that send differently, each with the number of those that send as it does."""

    def kind(gather: Gather) -> tuple[bool, Phase, _Shapes]:
        return gather.secondary, workload.segments[gather.segment].phase, _shapes(gather.parameters, workload)

    counts = Counter(map(kind, micro_batch.gathers))
    first = {kind(gather): gather for gather in reversed(micro_batch.gathers)}
    return tuple((first[each], count) for each, count in counts.items())


@lru_cache(maxsize=16)
def _kinds_of_buckets(
    workload: Workload, order: tuple[int, ...], limit: int
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Returns the buckets that are sent differently, each with the number of those that are sent as it is."""
    buckets = tuple(filled_buckets(order, list(workload.elements), limit))
    counts = Counter(_shapes(bucket, workload) for bucket in buckets)
    first = {_shapes(bucket, workload): bucket for bucket in reversed(buckets)}
    return tuple((first[each], count) for each, count in counts.items())


_Shapes = tuple[tuple[int, ...], ...]


def _shapes(parameters: tuple[int, ...], workload: Workload) -> _Shapes:
    """Returns all that decides what is sent for these parameters."""
    return tuple(workload.parameters[parameter].shape for parameter in parameters)


def gather_messages(gather: Gather, workload: Workload, shape: StepShape, knobs: Knobs) -> Iterator[Sent]:
    """Yields the message of one of stage 3's gathers; with qwZ elements and scales, one after the other."""
    phase = workload.segments[gather.segment].phase
    if knobs.quantized_weights:
        quantized = quantized_of_gather(gather, workload, shape.world_size, knobs)
        assert quantized is not None, "a gather that the rules refuse"
        yield from _in_parts((quantized,), phase)
        return
    degree = knobs.hpz_partition_size if gather.secondary else shape.world_size
    size = padded_elements(gather.parameters, workload, shape.world_size)
    yield Sent("all_gather", 1, degree, size * BYTES_PER_ELEMENT[shape.precision], phase)


def _in_parts(hops: tuple[QuantizedMessage, ...], cause: Cause) -> Iterator[Sent]:
    """Yields the elements of each hop, with what is converted for it, and its scales."""
    for hop in hops:
        between = (hop.operation, hop.degree_from, hop.degree_to)
        yield Sent(*between, hop.element_bytes, cause, math.ceil(converted_bytes(hop)))
        yield Sent(*between, hop.scale_bytes, cause)


def bucket_messages(bucket: tuple[int, ...], workload: Workload, shape: StepShape, knobs: Knobs) -> Iterator[Sent]:
    """Yields what stage 3 sends for the gradients of one bucket."""
    world, width = shape.world_size, BYTES_PER_ELEMENT[shape.precision]
    if knobs.quantized_gradients:
        yield from _quantized_bucket(bucket, workload, shape)
        return
    elements = sum(workload.parameters[parameter].num_elements for parameter in bucket)
    if not knobs.reduce_scatter and knobs.contiguous_gradients and elements <= knobs.reduce_bucket_size:
        yield Sent("all_reduce", 1, world, elements * width, "backward")
    else:
        yield Sent("reduce_scatter", 1, world, padded_elements(bucket, workload, world) * width, "backward")


def _quantized_bucket(bucket: tuple[int, ...], workload: Workload, shape: StepShape) -> Iterator[Sent]:
    """Yields what qgZ sends: each gradient on its own, and those that it cannot quantize by a reduce-scatter."""
    world, width = shape.world_size, BYTES_PER_ELEMENT[shape.precision]
    for parameter in bucket:
        hops = quantized_reduce(workload.parameters[parameter].shape, shape.ranks_per_node or world, world)
        if hops is None:
            size = padded_elements((parameter,), workload, world)
            yield Sent("reduce_scatter", 1, world, size * width, "backward")
        else:
            yield from _in_parts(hops, "backward")


def _num_sub_groups(workload: Workload, padded: list[int], world: int, knobs: Knobs) -> int:
    """Source: `_create_fp16_sub_groups`, deepspeed/runtime/zero/stage3.py, 0.19.8."""
    shards = [padded[index] // world for index, p in enumerate(workload.parameters) if p.trainable]
    if knobs.sub_group_size >= sum(shards):
        return 1
    count = elements = 0
    for size in shards:
        elements += size
        if elements >= knobs.sub_group_size:
            count, elements = count + 1, 0
    return count + (elements > 0)
