"""What DeepSpeed 0.19.8 holds on the fullest rank, beside the activations of the model.

Counted is what its sources allocate under the emitted settings (`planner.choose.ds_config`), with torch's fused
optimizers, which update in place. Every term was compared with real runs on gloo: see
`tests/integration/test_measured_memory.py`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from costmodels.deepspeed import memory_gathered, memory_offload, memory_partitioned, memory_replicated
from costmodels.deepspeed.knobs import Knobs, choose_knobs
from costmodels.deepspeed.memory_at_rest import at_rest
from costmodels.deepspeed.memory_sizes import Sizes
from costmodels.deepspeed.quantized_gather import dequantizing_bytes
from costmodels.engine import Assignment, Components, Course, EngineMemory
from costmodels.states import FP32_BYTES
from costmodels.strategy import StepShape
from costmodels.workload import Amount, Workload


def memory(workload: Workload, assignment: Assignment, shape: StepShape, knobs: Knobs | None = None) -> EngineMemory:
    """Returns what DeepSpeed holds at rest, in each segment, in the update and while it is built, in bytes.

    Args:
        workload: The traced step.
        assignment: A strategy that DeepSpeed has, for each class of blocks.
        shape: Micro-batch, number of micro-batches, precision, optimizer and device.
        knobs: DeepSpeed's settings; None: those that the planner chooses.
    """
    knobs = knobs or choose_knobs(workload, assignment, shape)
    has_frozen_inputs = knobs.stage == 3 and any(
        segment.frozen_input_bytes != Amount() for segment in workload.segments
    )
    if knobs.stage < 3:
        assignment = tuple(replace(strategy, recompute="none") for strategy in assignment)
    # As far as what is held depends on them, so that micro-batches are counted together.
    counted = replace(
        shape,
        micro_batch_size=shape.micro_batch_size if knobs.stage == 3 and has_frozen_inputs else 1,
        num_micro_batches=min(2, shape.num_micro_batches),
    )
    return _memory(Sizes(workload, knobs, counted), assignment)


@lru_cache(maxsize=128)
def _memory(sizes: Sizes, assignment: Assignment) -> EngineMemory:
    gathered, course, update, building_bytes = _of_stage(sizes, assignment)
    quantized = _dequantizing(sizes, assignment)
    return EngineMemory(
        at_rest=at_rest(sizes, assignment),
        init_peak_bytes=building_bytes if sizes.knobs.stage == 3 else max(building_bytes, _casting_bytes(sizes)),
        during_update=max(update, key=lambda held: held.total_bytes),
        throughout=tuple(held + quantized for held in gathered.throughout),
        course=course,
        entering_segment=gathered.entering,
        host_bytes=0 if sizes.shape.device == "cpu" else _host_bytes(sizes, assignment),
    )


def _dequantizing(sizes: Sizes, assignment: Assignment) -> Components:
    if not sizes.knobs.quantized_weights:
        return Components()
    step = memory_gathered.Gathered(sizes, assignment).micro_batches
    return Components(buffers=dequantizing_bytes(step, sizes.workload, sizes.shape.world_size))


def host_bytes(workload: Workload, assignment: Assignment, shape: StepShape, knobs: Knobs | None = None) -> int:
    """Returns the bytes that the fullest rank takes of its node's host memory; the arguments as for `memory`."""
    if assignment[0].offload == "none":
        return 0
    counted = replace(shape, micro_batch_size=1, num_micro_batches=min(2, shape.num_micro_batches))
    return _host_bytes(Sizes(workload, knobs or choose_knobs(workload, assignment, shape), counted), assignment)


@lru_cache(maxsize=64)
def _host_bytes(sizes: Sizes, assignment: Assignment) -> int:
    if assignment[0].offload == "none":
        return 0
    if sizes.knobs.stage == 3:
        return memory_offload.GatheredOffload(sizes, assignment).on_host.num_bytes
    return memory_offload.PartitionedOffload(sizes).on_host.num_bytes


_OfStage = tuple[memory_gathered.OfSegments, Course, tuple[Components, ...], int]
"""What is gathered; the course of gradients; moments of the update; bytes while the engine is made."""

_NOTHING_GATHERED = memory_gathered.OfSegments()


def _of_stage(sizes: Sizes, assignment: Assignment) -> _OfStage:
    if sizes.knobs.stage == 0:
        return (
            _NOTHING_GATHERED,
            memory_replicated.during_segments(sizes),
            memory_replicated.during_update(sizes),
            memory_replicated.building_bytes(sizes),
        )
    if assignment[0].offload != "none":
        return _offloaded(sizes, assignment)
    if sizes.knobs.stage < 3:
        partitioned = memory_partitioned.Partitioned(sizes)
        return (
            _NOTHING_GATHERED,
            memory_partitioned.during_segments(partitioned),
            memory_partitioned.during_update(partitioned),
            memory_partitioned.building_bytes(partitioned),
        )
    gathered = memory_gathered.Gathered(sizes, assignment)
    return (
        memory_gathered.of_segments(gathered),
        memory_gathered.during_segments(gathered),
        memory_gathered.during_update(gathered),
        memory_gathered.building_bytes(gathered),
    )


def _offloaded(sizes: Sizes, assignment: Assignment) -> _OfStage:
    """Returns the same where optimizer states lie on the host."""
    if sizes.knobs.stage < 3:
        partitioned = memory_offload.PartitionedOffload(sizes)
        return (
            _NOTHING_GATHERED,
            memory_partitioned.during_segments(partitioned),
            memory_offload.update_partitioned(partitioned),
            memory_offload.building_partitioned(partitioned),
        )
    gathered = memory_offload.GatheredOffload(sizes, assignment)
    return (
        memory_gathered.of_segments(gathered),
        memory_gathered.during_segments(gathered),
        memory_offload.update_gathered(gathered),
        memory_offload.building_gathered(gathered),
    )


def _casting_bytes(sizes: Sizes) -> int:
    """The model as it is built, in fp32, and the greatest bytes while it is cast tensor by tensor.

    Source: `_cast_module_mixed_precision`, deepspeed/runtime/engine.py, 0.19.8.
    """
    left_bytes = greatest_bytes = FP32_BYTES * sum(sizes.elements)
    if sizes.shape.precision == "fp32":
        return greatest_bytes
    for elements in sizes.elements:
        greatest_bytes = max(greatest_bytes, left_bytes + sizes.width_bytes * elements)
        left_bytes -= (FP32_BYTES - sizes.width_bytes) * elements
    return greatest_bytes
