"""Times collectives of given sizes over given kinds of group, on ranks that torchrun started; writes JSON.

python -m torch.distributed.run ... benchmarks/time_messages.py OUT 1,2 2,4 -- 3072 12288
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from runtime.ranks import leave

OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce", "reduce", "broadcast", "all_to_all")
_TIMED_S = 0.15
_MOST_IN_A_ROW = 50
_LEAST_TIMINGS, _MOST_TIMINGS = 5, 41


def main() -> None:
    """Measures everything asked for, and lets rank 0 write it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--kinds", nargs="+", required=True, help="degree_from,degree_to")
    parser.add_argument("--sizes", nargs="+", type=int, required=True, help="bytes of the full message")
    parser.add_argument("--seconds", type=float, default=0.6, help="for each point")
    given = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rows = []
    for kind in given.kinds:
        degree_from, degree_to = (int(degree) for degree in kind.split(","))
        group = _own_group(degree_from, degree_to)
        for operation in OPERATIONS:
            elements = [size_bytes // 4 // group.size() * group.size() for size_bytes in given.sizes]
            found = _in_turns([_call(operation, group, number) for number in elements], given.seconds)
            for number, seconds in zip(elements, found, strict=True):
                row = (operation, degree_from, degree_to, number * 4, seconds)
                rows.append(dict(zip(("operation", "degree_from", "degree_to", "bytes", "seconds"), row, strict=True)))
    if dist.get_rank() == 0:
        given.out.write_text(json.dumps(rows))
    leave()


def _own_group(degree_from: int, degree_to: int) -> dist.ProcessGroup:
    own = None
    for block in range(0, dist.get_world_size(), degree_to):
        for first in range(block, block + degree_from):
            members = list(range(first, block + degree_to, degree_from))
            group = dist.new_group(members)
            own = group if dist.get_rank() in members else own
    assert own is not None
    return own


def _call(operation: str, group: dist.ProcessGroup, num_elements: int) -> Callable[[], object]:
    full, other = torch.ones(num_elements), torch.ones(num_elements)
    shard, root = other[: num_elements // group.size()], dist.get_global_rank(group, 0)
    return {
        "all_gather": lambda: dist.all_gather_into_tensor(full, shard, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(shard, full, group=group),
        "all_reduce": lambda: dist.all_reduce(full, group=group),
        "reduce": lambda: dist.reduce(full, root, group=group),
        "broadcast": lambda: dist.broadcast(full, root, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, full, group=group),
    }[operation]


def _in_turns(calls: Sequence[Callable[[], object]], least_s: float) -> list[float]:
    """Returns for each call the mean of the middle half of many timings, each of calls in a row, on the slowest rank.

    In turns, as a step has messages of many sizes: one that is repeated alone finds its connections at its own pace.
    """
    in_a_row, timings = [], []
    for call in calls:
        call()
        call()
        once_s = _slowest_s([_row_s(call, 3)])[0]
        in_a_row.append(min(max(int(_TIMED_S / once_s), 1), _MOST_IN_A_ROW))
        timings.append(min(max(int(least_s / (once_s * in_a_row[-1])), _LEAST_TIMINGS), _MOST_TIMINGS))
    samples: list[list[float]] = [[] for _ in calls]
    for turn in range(max(timings)):
        for number, call in enumerate(calls):
            if turn < timings[number]:
                samples[number].append(_row_s(call, in_a_row[number]))
    means = []
    for own in samples:
        ordered = sorted(_slowest_s(own))
        middle = ordered[len(ordered) // 4 : len(ordered) - len(ordered) // 4]
        means.append(sum(middle) / len(middle))
    return means


def _row_s(call: Callable[[], object], times: int) -> float:
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begun) / times


def _slowest_s(seconds: list[float]) -> list[float]:
    values = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return [float(value) for value in values.tolist()]


if __name__ == "__main__":
    main()
