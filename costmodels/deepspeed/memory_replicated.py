"""What DeepSpeed's stage 0 holds: everything, on every rank.

In fp32 torch's optimizer works on the model itself. In bf16 and fp16 `FP16_UnfusedOptimizer` keeps an fp32 copy of
each parameter, and in the update an fp32 copy of each gradient.

Source: `_do_optimizer_sanity_check` and `allreduce_no_retain`, deepspeed/runtime/engine.py;
deepspeed/runtime/fp16/unfused_optimizer.py, 0.19.8.
"""

from __future__ import annotations

from costmodels.deepspeed.memory_accumulation import accumulation
from costmodels.deepspeed.memory_sizes import Sizes
from costmodels.deepspeed.reduce import engine_buckets, flat_copy
from costmodels.engine import Components, Course
from costmodels.states import FP32_BYTES


def at_rest(sizes: Sizes) -> Components:
    """Returns the bytes between two steps; gradients are given up after each."""
    master_bytes = 0 if sizes.shape.precision == "fp32" else FP32_BYTES
    return Components(
        parameters=sizes.width_bytes * sum(sizes.elements),
        optimizer_states=(master_bytes + sizes.moments_bytes) * sum(sizes.trainable),
    )


def during_segments(sizes: Sizes) -> Course:
    """Returns the course of each segment: the gradients so far, or all of them from the second micro-batch on."""
    return accumulation(sizes)


def during_update(sizes: Sizes) -> tuple[Components, ...]:
    """Returns the moments after backward: gradients flattened for the all-reduce, then made fp32 for the update."""
    gradients_bytes = sizes.width_bytes * sum(sizes.trainable)
    largest_copy = max((flat_copy(bucket) for bucket in engine_buckets(sizes.trainable)), default=0)
    reduction = Components(gradients=gradients_bytes, buffers=sizes.width_bytes * largest_copy)
    if sizes.shape.precision == "fp32":
        return (reduction, Components(gradients=gradients_bytes))
    late_bytes = reduction.buffers if sizes.frees_late(reduction.buffers) else 0
    fp32_bytes = FP32_BYTES * sum(sizes.trainable)
    return (reduction, Components(gradients=gradients_bytes, buffers=late_bytes, optimizer_step=fp32_bytes))


def building_bytes(sizes: Sizes) -> int:
    """Returns the greatest bytes while the engine is made of a model that is already in its precision."""
    held_bytes = at_rest(sizes).total_bytes
    if sizes.shape.precision == "fp32":
        return held_bytes - sizes.moments_bytes * sum(sizes.trainable)
    # A first update with gradients of zeros, in both precisions, makes the states: `initialize_optimizer_states`.
    return held_bytes + (sizes.width_bytes + FP32_BYTES) * sum(sizes.trainable)
