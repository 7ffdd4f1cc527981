"""When a step needs each block's parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from costmodels.workload import Phase, Segment, Workload

PREFETCH = 1
"""Blocks that are gathered ahead of the running one. Source: `runtime/fsdp/strategies.py`, `ShardingPlan`."""


@dataclass(frozen=True, slots=True)
class Use:
    """The segments in which a block's parameters are needed in one phase, first to last."""

    block: int
    first: int
    last: int


@lru_cache(maxsize=16)
def uses(workload: Workload, phase: Phase) -> tuple[Use, ...]:
    """Returns the blocks whose parameters a phase needs, in order of their gathers."""
    owned_by = owners(workload)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, segment in enumerate(workload.segments):
        if segment.phase == phase:
            for block in dict.fromkeys(_needed(workload, segment, owned_by)):
                first.setdefault(block, position)
                last[block] = position
    return tuple(Use(block, first[block], last[block]) for block in first)


def owners(workload: Workload) -> dict[int, int]:
    """Returns the block that owns each parameter."""
    return {index: number for number, block in enumerate(workload.blocks) for index in block.parameters}


def _needed(workload: Workload, segment: Segment, owned_by: dict[int, int]) -> Iterator[int]:
    """Blocks whose parameters a segment reads: its own, and those that it borrows (tied ones)."""
    if workload.blocks[segment.block].parameters:
        yield segment.block
    for call in segment.calls:
        for index in call.parameters:
            yield owned_by[index]
