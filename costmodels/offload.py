"""Seconds of an optimizer step whose states lie in host memory: what crosses the link, and the update on the host.

Optimizer states are updated where they lie, by the node's processor. The reduced gradients of a rank's shard go down
to it and the updated parameters come up; where parameters lie on the host too, each gather brings its shards up first.
Nothing of it is counted as hidden behind compute, although an engine may copy the gradients of one block while
backward goes on: so a step with offload is bounded from above.

Source: ZeRO-Offload (arXiv 2101.06840), sections 4.1 and 5; ZeRO-Infinity (arXiv 2104.07857), section 5.2; what is
copied when: `copy_grads_in_partition`, `async_accumulate_grad_in_cpu_via_gpu` and `step`,
deepspeed/runtime/zero/stage_1_and_2.py, and `partition_grads`, deepspeed/runtime/zero/stage3.py, 0.19.8.
"""

from __future__ import annotations

from sympy import ceiling

from costmodels.lower import Formula
from costmodels.network import DeviceSpeed, HostSpeed
from costmodels.states import FP32_BYTES, StateWidths, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.symbols import (
    HOST_BYTES_PER_S,
    HOST_WIDTH,
    LINK_BYTES_PER_S,
    MOVED_WIDTH,
    NUM_PARAMS,
    OPTIM_DEGREE,
)

_NS_PER_S = 10**9

MOVED_NS = Formula(
    "moved between host and device",
    _NS_PER_S * MOVED_WIDTH * ceiling(NUM_PARAMS / OPTIM_DEGREE) / LINK_BYTES_PER_S,
    (MOVED_WIDTH, NUM_PARAMS, OPTIM_DEGREE, LINK_BYTES_PER_S),
    "ns",
    "ZeRO-Offload (arXiv 2101.06840), section 4.1; copies as in DeepSpeed 0.19.8",
)

HOST_UPDATE_NS = Formula(
    "update on the host",
    _NS_PER_S * HOST_WIDTH * ceiling(NUM_PARAMS / OPTIM_DEGREE) / HOST_BYTES_PER_S,
    (HOST_WIDTH, NUM_PARAMS, OPTIM_DEGREE, HOST_BYTES_PER_S),
    "ns",
    "one pass over states and gradients at the speed of a rank's part of host memory",
)


def offloaded_update_ns(
    num_params: int, num_trainable: int, strategy: Strategy, shape: StepShape, speed: DeviceSpeed
) -> int:
    """Returns the nanoseconds that one block's update on the host adds to a step, all that it moves included.

    Args:
        num_params: elements of the block.
        num_trainable: elements of it that are trained.
        strategy: one that offloads.
        shape: micro-batches, precision, optimizer.
        speed: of a rank's device and of its part of the host.

    Raises:
        ValueError: an optimizer whose states are not known, or a host whose speeds are not.
    """
    host = host_of(speed)
    widths = state_widths(shape.precision, shape.optimizer)
    degree = strategy.optim_degree
    trained_ns = MOVED_NS(moved_width(strategy, shape), num_trainable, degree, host.link_bytes_per_s)
    gathered_ns = MOVED_NS(gathered_width(strategy, shape), num_params, degree, host.link_bytes_per_s)
    return trained_ns + gathered_ns + HOST_UPDATE_NS(host_width(widths), num_trainable, degree, host.memory_bytes_per_s)


def host_of(speed: DeviceSpeed) -> HostSpeed:
    """Returns the host of a device.

    Raises:
        ValueError: nothing is known of it.
    """
    if speed.host is None:
        raise ValueError("what is offloaded takes its time from the host's link and memory, and they are not known")
    return speed.host


def moved_width(strategy: Strategy, shape: StepShape) -> int:
    """Returns the bytes per trained element of a rank's shard that cross the link in a step, gathers left out.

    Gradients go down as fp32 once a step, parameters come up once unless they stay on the host. Where gradients are
    reduced in each of several micro-batches, their sum so far goes down after each and comes up before the next;
    DeepSpeed's stage 3 takes it down and up again even in the first.
    """
    width = state_widths(shape.precision, shape.optimizer).parameter
    num_micro_batches = shape.num_micro_batches
    once = FP32_BYTES + (0 if strategy.offload == "all" else width)
    if strategy.param_degree > 1 or strategy.offload == "all":
        return once + 2 * width * num_micro_batches
    reduces_each = strategy.grad_degree > 1 or shape.world_size == 1
    return once + (width * (2 * num_micro_batches - 1) if reduces_each and num_micro_batches > 1 else 0)


def gathered_width(strategy: Strategy, shape: StepShape) -> int:
    """Returns the bytes per element of a rank's shard that gathers bring up: in forward, and anew in backward."""
    if strategy.offload != "all":
        return 0
    width = state_widths(shape.precision, shape.optimizer).parameter
    is_kept = strategy.secondary_degree == 1 < strategy.param_degree
    return width * shape.num_micro_batches * (1 if is_kept else 2)


def host_width(widths: StateWidths) -> int:
    """Returns the bytes per element that the host reads and writes in an update.

    The fp32 gradient is scaled, then read; moments and fp32 parameters are read and written; these are read again and
    written in the model's width, to be sent up.
    """
    states = widths.moments + FP32_BYTES
    return 3 * FP32_BYTES + 2 * states + FP32_BYTES + widths.parameter
