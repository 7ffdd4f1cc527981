"""Seconds of compute: a roofline per segment, and the optimizer's update from the bytes it touches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from sympy import Max, ceiling

from costmodels.engine import Assignment
from costmodels.lower import Formula
from costmodels.network import DeviceSpeed
from costmodels.offload import offloaded_update_ns
from costmodels.states import StateWidths, num_block_params, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.symbols import (
    BYTES_PER_S,
    FLOP,
    FLOP_PER_S,
    IO_BYTES,
    LAUNCH_S,
    NUM_OPERATORS,
    NUM_PARAMS,
    OPTIM_DEGREE,
    PRODUCT_IO_BYTES,
    UPDATE_WIDTH,
)
from costmodels.workload import Segment, Workload

NS_PER_S = 10**9

OVERLAP_PARTS = 1000
"""phi, the part of communication that runs beside compute, is counted in whole parts of this, rounded down."""

SEGMENT_NS = Formula(
    "segment",
    NS_PER_S
    * Max(  # type: ignore[no-untyped-call]
        Max(FLOP / FLOP_PER_S, PRODUCT_IO_BYTES / BYTES_PER_S) + IO_BYTES / BYTES_PER_S,  # type: ignore[no-untyped-call]
        NUM_OPERATORS * LAUNCH_S,
    ),
    (FLOP, FLOP_PER_S, PRODUCT_IO_BYTES, IO_BYTES, BYTES_PER_S, NUM_OPERATORS, LAUNCH_S),
    "ns",
    "Williams et al., Roofline (CACM 52(4), 2009), of the products; the other operators run between them at the "
    "memory's speed, and the host launches all of them",
)

UPDATE_NS = Formula(
    "update",
    NS_PER_S * UPDATE_WIDTH * ceiling(NUM_PARAMS / OPTIM_DEGREE) / BYTES_PER_S,
    (UPDATE_WIDTH, NUM_PARAMS, OPTIM_DEGREE, BYTES_PER_S),
    "ns",
    "one pass over the states: an optimizer's update is far below the ridge of any roofline",
)


@dataclass(frozen=True, slots=True)
class Computed:
    """A stretch of compute, and what of it communication can run beside."""

    duration_ns: int = 0
    overlappable_ns: int = 0
    """phi of the duration, rounded down segment by segment: the same however segments are summed."""

    def __add__(self, other: Computed) -> Computed:
        return Computed(self.duration_ns + other.duration_ns, self.overlappable_ns + other.overlappable_ns)


@dataclass(frozen=True, slots=True)
class ClassCompute:
    """What all blocks of a class compute in one micro-batch."""

    forward: Computed = Computed()
    backward: Computed = Computed()
    """Without recomputation."""
    recompute: Computed = Computed()
    """What `recompute: full` adds: the forward of the recomputable blocks once more."""


@dataclass(frozen=True, slots=True)
class ComputeTime:
    """Nanoseconds of compute of one rank in one optimizer step (all M micro-batches)."""

    forward_ns: int
    backward_ns: int
    """Recomputation included."""
    update_ns: int
    forward_overlappable_ns: int
    """What communication can run beside: phi of it (see `Computed`)."""
    first_forward_overlappable_ns: int
    """The same in the first micro-batch alone."""
    backward_overlappable_ns: int
    last_backward_overlappable_ns: int
    """The same in the last micro-batch alone."""

    @property
    def total_ns(self) -> int:
        """All three."""
        return self.forward_ns + self.backward_ns + self.update_ns


def compute_time(workload: Workload, assignment: Assignment, shape: StepShape, speed: DeviceSpeed) -> ComputeTime:
    """Returns what a rank computes in one step: the sum of its segments, M times, and one update.

    Raises:
        ValueError: an optimizer whose states are not known.
    """
    classes = class_compute(workload, shape.micro_batch_size, speed)
    forward = sum((each.forward for each in classes), Computed())
    backward = sum((each.backward for each in classes), Computed())
    for each, strategy in zip(classes, assignment, strict=True):
        backward += each.recompute if strategy.recompute == "full" else Computed()
    update = [
        class_update_ns(workload, block_class, strategy, shape, speed)
        for block_class, strategy in enumerate(assignment)
    ]
    return ComputeTime(
        forward_ns=forward.duration_ns * shape.num_micro_batches,
        backward_ns=backward.duration_ns * shape.num_micro_batches,
        update_ns=sum(update),
        forward_overlappable_ns=forward.overlappable_ns * shape.num_micro_batches,
        first_forward_overlappable_ns=forward.overlappable_ns,
        backward_overlappable_ns=backward.overlappable_ns * shape.num_micro_batches,
        last_backward_overlappable_ns=backward.overlappable_ns,
    )


def overlappable_ns(duration_ns: int, speed: DeviceSpeed) -> int:
    """Returns the part of a duration in which the device both computes and communicates: phi of it, rounded down.

    Applied to each duration before they are summed, so that sums of it stay linear in what is chosen.
    """
    return int(min(1.0, speed.overlap) * OVERLAP_PARTS) * duration_ns // OVERLAP_PARTS


@lru_cache(maxsize=64)
def class_compute(workload: Workload, micro_batch_size: int, speed: DeviceSpeed) -> tuple[ClassCompute, ...]:
    """Returns the compute of each class of blocks in one micro-batch; index = `Block.block_class`."""
    forward, backward, recompute = ([Computed()] * workload.num_classes for _ in range(3))
    for segment in workload.segments:
        block = workload.blocks[segment.block]
        duration_ns = segment_ns(segment, micro_batch_size, speed)
        computed = Computed(duration_ns, overlappable_ns(duration_ns, speed))
        if segment.phase == "backward":
            backward[block.block_class] += computed
            continue
        forward[block.block_class] += computed
        if block.recomputable:
            recompute[block.block_class] += computed
    return tuple(ClassCompute(*terms) for terms in zip(forward, backward, recompute, strict=True))


def segment_ns(segment: Segment, micro_batch_size: int, speed: DeviceSpeed) -> int:
    """Returns the nanoseconds of one segment: its products and the other operators, or its launches."""
    return SEGMENT_NS(
        segment.flop.at(micro_batch_size),
        speed.matmul_flop_per_s,
        segment.product_io_bytes.at(micro_batch_size),
        segment.io_bytes.at(micro_batch_size),
        speed.memory_bytes_per_s,
        segment.num_operators,
        speed.operator_launch_s,
    )


def class_update_ns(
    workload: Workload, block_class: int, strategy: Strategy, shape: StepShape, speed: DeviceSpeed
) -> int:
    """Returns the nanoseconds that the optimizer takes for a rank's shards of all blocks of a class.

    Of states in host memory, what is moved to and from them is included (`costmodels.offload`).

    Raises:
        ValueError: an optimizer whose states are not known, or offload to a host that is not.
    """
    blocks = _class_params(workload)[block_class]
    if strategy.offload != "none":
        return sum(count * offloaded_update_ns(*params, strategy, shape, speed) for params, count in blocks)
    width = update_width(state_widths(shape.precision, shape.optimizer))
    return sum(
        count * UPDATE_NS(width, num_trainable, strategy.optim_degree, speed.memory_bytes_per_s)
        for (_, num_trainable), count in blocks
    )


@lru_cache(maxsize=16)
def _class_params(workload: Workload) -> tuple[tuple[tuple[tuple[int, int], int], ...], ...]:
    """Returns for each class the (all, trainable) elements of its blocks, each with the number of such blocks."""
    found: list[Counter[tuple[int, int]]] = [Counter() for _ in range(workload.num_classes)]
    for block in workload.blocks:
        found[block.block_class][num_block_params(workload, block)] += 1
    return tuple(tuple(counts.items()) for counts in found)


def update_width(widths: StateWidths) -> int:
    """Returns the bytes that an update touches per parameter.

    The gradient is read, moments and master copy are read and written, the parameter is written; without a master
    copy the parameter is read too.
    """
    reads_parameter = widths.parameter if widths.master == 0 else 0
    return widths.gradient + 2 * widths.optimizer + widths.parameter + reads_parameter


def model_flop(workload: Workload, micro_batch_size: int) -> int:
    """Returns the floating-point operations of one rank's micro-batch, forward and backward, without recomputation."""
    return sum(segment.flop.at(micro_batch_size) for segment in workload.segments)


def mfu(workload: Workload, shape: StepShape, step_s: float, peak_flop_per_s: float) -> float:
    """Returns the model FLOPs utilization: FLOP of the model itself over what the peak would allow in the step.

    Args:
        workload: the traced step.
        shape: its micro-batches.
        step_s: seconds of one optimizer step.
        peak_flop_per_s: the vendor's dense peak of one rank's device.

    Source: PaLM (arXiv 2204.02311), appendix B: recomputation is not counted.
    """
    flop = model_flop(workload, shape.micro_batch_size) * shape.num_micro_batches
    return flop / (step_s * peak_flop_per_s)
