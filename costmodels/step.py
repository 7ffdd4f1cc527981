"""Seconds of an optimizer step: compute, and the communication that compute does not hide, by cause.

A bound of the timeline, one phase at a time. Within the forwards (and the backwards) of a step, with c seconds of
compute, k of communication, u of it that nothing can hide, and phi the part of communication that runs beside compute:

    T = u + max(c + (1 - phi) (k - u), (k - u) + (1 - phi) c) = c + k - phi min(c, k - u)

u is, in each micro-batch, the longest message of the forward (the first block cannot compute before it is gathered)
and the longest reduction of the backward (the last gradients cannot be sent before they are computed); so one bucket
as large as the model hides nothing. Gradients that an engine reduces at the boundary while the last backward still
computes hide behind what that one micro-batch leaves, all but the longest of them; so do updated parameters that it
gathers while the next step's first forward computes, behind what that forward leaves. Other messages of the boundary,
of the update and of control stand alone. Every figure is whole nanoseconds, so that the parts sum to the step exactly,
and each is linear or a maximum of linear terms, so that a solver can hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodels.communication import CAUSES, ByCause, CommunicationTime, communication_time, message_times
from costmodels.compute import NS_PER_S, ComputeTime, compute_time
from costmodels.engine import Assignment, Message, Operation
from costmodels.network import FROM_LEAST_CERTAIN, DeviceSpeed, Network, Provenance
from costmodels.strategy import StepShape
from costmodels.workload import Workload


@dataclass(frozen=True, slots=True)
class KindTime:
    """All messages of one operation over one kind of group, in one optimizer step."""

    operation: Operation
    degree_from: int
    degree_to: int
    total_bytes: int
    count: int
    duration_ns: int
    exposed_ns: int
    provenance: Provenance
    """Of the least certain of its messages."""

    @property
    def seconds(self) -> float:
        """Seconds on the wire."""
        return self.duration_ns / NS_PER_S

    @property
    def exposed_s(self) -> float:
        """Seconds of them that compute does not hide."""
        return self.exposed_ns / NS_PER_S


@dataclass(frozen=True, slots=True)
class StepTime:
    """Where the time of one optimizer step goes. step = compute + exposed, exactly in nanoseconds."""

    compute: ComputeTime
    exposed: ByCause
    kinds: tuple[KindTime, ...]
    """Ordered by operation and degrees; their `exposed_ns` sum to `exposed.total_ns`."""

    @property
    def step_ns(self) -> int:
        """Nanoseconds of the step."""
        return self.compute.total_ns + self.exposed.total_ns

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return self.step_ns / NS_PER_S

    @property
    def compute_s(self) -> float:
        """Seconds of compute: forward, backward with recomputation, update."""
        return self.compute.total_ns / NS_PER_S

    @property
    def exposed_communication_s(self) -> float:
        """Seconds of communication that compute does not hide."""
        return self.exposed.total_ns / NS_PER_S


def step_time(
    workload: Workload,
    messages: tuple[Message, ...],
    assignment: Assignment,
    shape: StepShape,
    network: Network,
    speed: DeviceSpeed,
) -> StepTime:
    """Returns the time of one optimizer step.

    Args:
        workload: the traced step.
        messages: what the engine sends in the step, `Engine.traffic`.
        assignment: one strategy per class of blocks.
        shape: micro-batches, precision, optimizer.
        network: the machine's links.
        speed: the machine's devices.

    Raises:
        ValueError: an optimizer whose states are not known.
    """
    compute = compute_time(workload, assignment, shape, speed)
    communication = communication_time(messages, network, shape.num_micro_batches, speed)
    exposed = exposed_time(compute, communication)
    return StepTime(compute, exposed, _kinds(messages, network, speed, communication.duration, exposed))


def exposed_time(compute: ComputeTime, communication: CommunicationTime) -> ByCause:
    """Returns the communication of one step that its compute does not hide, by cause.

    In a linear model: backward and boundary together take the greatest of c + k less all of backward's compute, less
    what of both communications is overlappable, and less backward's communication and the last backward's compute;
    forward and the messages of the update likewise, with the first forward's compute.
    """
    sent = communication.duration
    forward_hides_ns = min(compute.forward_overlappable_ns, communication.forward_overlappable_ns)
    first_hides_ns = min(
        compute.first_forward_overlappable_ns,
        compute.forward_overlappable_ns - forward_hides_ns,
        communication.update_overlappable_ns,
    )
    backward_hides_ns = min(compute.backward_overlappable_ns, communication.backward_overlappable_ns)
    last_hides_ns = min(
        compute.last_backward_overlappable_ns,
        compute.backward_overlappable_ns - backward_hides_ns,
        communication.boundary_overlappable_ns,
    )
    return ByCause(
        sent.forward_ns - forward_hides_ns,
        sent.backward_ns - backward_hides_ns,
        sent.boundary_ns - last_hides_ns,
        sent.update_ns - first_hides_ns,
        sent.control_ns,
    )


def _kinds(
    messages: tuple[Message, ...], network: Network, speed: DeviceSpeed, sent: ByCause, exposed: ByCause
) -> tuple[KindTime, ...]:
    """Shares out each cause's exposed time over its messages, in proportion to what they take."""
    running = dict.fromkeys(CAUSES, 0)
    kinds: dict[tuple[Operation, int, int], KindTime] = {}
    for message, (one_ns, provenance) in zip(messages, message_times(messages, network, speed), strict=True):
        before_ns = running[message.cause]
        after_ns = running[message.cause] = before_ns + one_ns * message.count
        sent_ns = getattr(sent, f"{message.cause}_ns")
        exposed_ns = getattr(exposed, f"{message.cause}_ns")
        share_ns = (after_ns * exposed_ns // sent_ns - before_ns * exposed_ns // sent_ns) if sent_ns else 0
        key = (message.operation, message.degree_from, message.degree_to)
        old = kinds.get(key, KindTime(*key, 0, 0, 0, 0, "measured"))
        kinds[key] = KindTime(
            *key,
            old.total_bytes + message.total_bytes,
            old.count + message.count,
            old.duration_ns + one_ns * message.count,
            old.exposed_ns + share_ns,
            min(old.provenance, provenance, key=FROM_LEAST_CERTAIN.index),
        )
    return tuple(kinds[key] for key in sorted(kinds))
