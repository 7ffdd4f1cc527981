"""Times collectives over every kind of shard group, all groups of a kind at once. Runs on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
import torch.distributed as dist

from hw_profiles.schema import Curve, CurvePoint, Operation

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_ELEMENT_BYTES = 4
"""fp32: gloo has no faster path for smaller types, and NCCL moves bytes alike."""
_WARM_UPS = 2
"""Untimed calls of each size: the first of a group connects its ranks."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    sizes_bytes: tuple[int, ...]
    seconds_per_point: float
    least_repetitions: int
    most_repetitions: int


QUICK = Effort((1 << 10, 1 << 15, 1 << 19, 1 << 22), 0.15, 3, 25)
FULL = Effort(tuple(1 << power for power in range(10, 25, 2)), 0.5, 5, 101)


def time_collectives(
    kinds: Sequence[tuple[int, int]], effort: Effort, device: torch.device, progress: Callable[[str], None]
) -> tuple[Curve, ...]:
    """Returns the curves of all operations for each kind of group (degree_from, degree_to), the same on every rank."""
    curves = []
    for degree_from, degree_to in kinds:
        group = _own_group(degree_from, degree_to)
        for operation in OPERATIONS:
            progress(f"{operation} between {degree_from} and {degree_to}")
            points = _time_points(operation, group, effort, device)
            curves.append(Curve(operation=operation, degree_from=degree_from, degree_to=degree_to, points=points))
        dist.barrier()
        dist.destroy_process_group(group)
    return tuple(curves)


def _own_group(degree_from: int, degree_to: int) -> dist.ProcessGroup:
    """Makes all groups between two degrees and returns this rank's."""
    own: dist.ProcessGroup | None = None
    for block in range(0, dist.get_world_size(), degree_to):
        for first in range(block, block + degree_from):
            group = dist.new_group(list(range(first, block + degree_to, degree_from)))
            if dist.get_rank() in range(first, block + degree_to, degree_from):
                own = group
    assert own is not None  # the groups of a kind cover all ranks
    return own


def _time_points(
    operation: Operation, group: dist.ProcessGroup, effort: Effort, device: torch.device
) -> tuple[CurvePoint, ...]:
    """Times every size, in turns: what disturbs the machine for a while then slows all sizes alike, and not one."""
    ranks = group.size()
    numbers = sorted({max(size_bytes // _ELEMENT_BYTES // ranks, 1) * ranks for size_bytes in effort.sizes_bytes})
    calls = [_call(operation, group, num_elements, device) for num_elements in numbers]
    for call in calls * _WARM_UPS:
        call()
    seconds = _in_turns(calls, [effort.least_repetitions] * len(calls), device)
    wanted = [min(int(effort.seconds_per_point / _median(each)), effort.most_repetitions) for each in seconds]
    more = _in_turns(calls, [count - effort.least_repetitions for count in wanted], device)
    return tuple(
        CurvePoint(bytes=num_elements * _ELEMENT_BYTES, seconds=_median(first + others))
        for num_elements, first, others in zip(numbers, seconds, more, strict=True)
    )


def _in_turns(
    calls: Sequence[Callable[[], object]], repetitions: Sequence[int], device: torch.device
) -> list[list[float]]:
    """Returns, for each call, the seconds of each of its repetitions on the slowest rank."""
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(max(repetitions)):
        for call, count, own in zip(calls, repetitions, seconds, strict=True):
            if turn < count:
                own.append(_seconds(call, device))
    return [_slowest(own, device) if own else [] for own in seconds]


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _call(
    operation: Operation, group: dist.ProcessGroup, num_elements: int, device: torch.device
) -> Callable[[], object]:
    """Returns a call that runs the operation once on buffers of its own."""
    full = torch.zeros(num_elements, device=device)
    other = torch.zeros(num_elements, device=device)
    shard = torch.zeros(num_elements // group.size(), device=device)
    root = dist.get_global_rank(group, 0)
    calls: dict[Operation, Callable[[], object]] = {
        "all_gather": lambda: dist.all_gather_into_tensor(full, shard, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(shard, full, group=group),
        "all_reduce": lambda: dist.all_reduce(full, group=group),
        "reduce": lambda: dist.reduce(full, root, group=group),
        "broadcast": lambda: dist.broadcast(full, root, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, full, group=group),
    }
    return calls[operation]


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    """Times one call that all ranks of the world start together."""
    dist.barrier()
    _finish(device)
    start = time.perf_counter()
    call()
    _finish(device)
    return time.perf_counter() - start


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _slowest(seconds: Sequence[float], device: torch.device) -> list[float]:
    """Returns, for each repetition, the seconds of its slowest rank."""
    values = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return [float(value) for value in values.tolist()]
