"""Gives each block a strategy of its own, by splitting classes of equal blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costmodels.engine import Assignment
from costmodels.strategy import Strategy
from costmodels.workload import Workload


def assign(workload: Workload, strategies: Mapping[int, Strategy]) -> tuple[Workload, Assignment]:
    """Returns the workload whose classes are those of equal blocks with equal strategies, and the strategy of each.

    Args:
        workload: The traced step.
        strategies: One for each index into `Workload.blocks`.
    """
    numbers: dict[tuple[int, Strategy], int] = {}
    blocks = tuple(
        replace(block, block_class=numbers.setdefault((block.block_class, strategies[index]), len(numbers)))
        for index, block in enumerate(workload.blocks)
    )
    return replace(workload, blocks=blocks), tuple(strategy for _, strategy in numbers)
