"""Seconds of communication: what the messages of a step take, by cause, before compute hides any of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from costmodels.collectives import collective_time
from costmodels.compute import NS_PER_S, overlappable_ns
from costmodels.engine import Cause, Message, Operation
from costmodels.lower import round_up
from costmodels.network import DeviceSpeed, Network, Provenance

CAUSES: tuple[Cause, ...] = ("forward", "backward", "boundary", "update", "control")

_GATHERS: tuple[Operation, ...] = ("all_gather", "broadcast")


@dataclass(frozen=True, slots=True)
class ByCause:
    """Nanoseconds of communication in one optimizer step, by what it is for."""

    forward_ns: int = 0
    backward_ns: int = 0
    boundary_ns: int = 0
    update_ns: int = 0
    control_ns: int = 0

    @property
    def total_ns(self) -> int:
        """All five."""
        return self.forward_ns + self.backward_ns + self.boundary_ns + self.update_ns + self.control_ns


@dataclass(frozen=True, slots=True)
class CommunicationTime:
    """What one rank's messages take in one optimizer step."""

    duration: ByCause
    forward_overlappable_ns: int
    """What can run beside compute: phi of all but the longest message of each micro-batch."""
    backward_overlappable_ns: int
    """What can run beside compute: phi of all but the longest reduction of each micro-batch."""
    boundary_overlappable_ns: int
    """What can run beside the last backward: phi of all but the longest of the messages sent beside it."""
    update_overlappable_ns: int
    """What can run beside the first forward: phi of all but the longest of the messages sent beside it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What messages take, before anything is said of which of them come first or last in a micro-batch."""

    duration: dict[Cause, int]
    overlappable: dict[Cause, int]
    """phi of it, of what can run beside compute at all."""
    bare: dict[Cause, list[tuple[int, int]]]
    """(overlappable ns of one, count) of the messages of which the longest is exposed."""


def communication_time(
    messages: tuple[Message, ...], network: Network, num_micro_batches: int, speed: DeviceSpeed
) -> CommunicationTime:
    """Returns what the messages of a step take, before any of it is hidden, and how much can be.

    In each micro-batch nothing hides the longest message of the forward, because the first block cannot compute
    before it is gathered, nor the longest reduction of the backward, because the last gradients cannot be sent before
    they are computed; once in a step, the same holds of the update's gathers and of the boundary's reductions. None of
    them depends on what is recomputed.
    """
    sent = sum_messages(messages, network, speed)
    return CommunicationTime(
        ByCause(*(sent.duration[cause] for cause in CAUSES)),
        sent.overlappable["forward"] - _longest(sent.bare["forward"], num_micro_batches),
        sent.overlappable["backward"] - _longest(sent.bare["backward"], num_micro_batches),
        sent.overlappable["boundary"] - _longest(sent.bare["boundary"], 1),
        sent.overlappable["update"] - _longest(sent.bare["update"], 1),
    )


def sum_messages(messages: tuple[Message, ...], network: Network, speed: DeviceSpeed) -> Sent:
    """Returns what messages take by cause, in nanoseconds: a sum over messages, so that parts of a step add up."""
    duration: dict[Cause, int] = dict.fromkeys(CAUSES, 0)
    overlappable: dict[Cause, int] = dict.fromkeys(CAUSES, 0)
    bare: dict[Cause, list[tuple[int, int]]] = {cause: [] for cause in CAUSES}
    for message, (duration_ns, _) in zip(messages, message_times(messages, network, speed), strict=True):
        part_ns = overlappable_ns(duration_ns, speed)
        duration[message.cause] += duration_ns * message.count
        if (message.cause == "boundary" and not message.beside_backward) or (
            message.cause == "update" and not message.beside_forward
        ):
            continue
        overlappable[message.cause] += part_ns * message.count
        if message.cause in ("forward", "update") or message.operation not in _GATHERS:
            bare[message.cause].append((part_ns, message.count))
    return Sent(duration, overlappable, bare)


def message_times(
    messages: tuple[Message, ...], network: Network, speed: DeviceSpeed | None = None
) -> tuple[tuple[int, Provenance], ...]:
    """Returns for each message the nanoseconds of a single one of it, and how they are known.

    Args:
        messages: what is sent.
        network: the machine's links.
        speed: the devices, whose memory quantizing reads and writes; None: only what is sent counts.
    """
    known = _timetable(network)
    times = []
    for message in messages:
        key = (message.operation, message.degree_from, message.degree_to, message.message_bytes)
        if key not in known:
            time = collective_time(*key, network)
            known[key] = (round_up(time.seconds * NS_PER_S), time.provenance)
        duration_ns, provenance = known[key]
        if message.converted_bytes and speed is not None:
            duration_ns += round_up(NS_PER_S * message.converted_bytes / speed.memory_bytes_per_s)
        times.append((duration_ns, provenance))
    return tuple(times)


def _longest(messages: Iterable[tuple[int, int]], num: int) -> int:
    """Sums the `num` longest of (duration, count) messages: one in each micro-batch."""
    total_ns = 0
    for duration_ns, count in sorted(messages, reverse=True):
        taken = min(count, num)
        total_ns += taken * duration_ns
        num -= taken
    return total_ns


@lru_cache(maxsize=8)
def _timetable(network: Network) -> dict[tuple[Operation, int, int, int], tuple[int, Provenance]]:
    """The times of a network's messages as they become known: a pure function's answers, kept."""
    del network
    return {}
