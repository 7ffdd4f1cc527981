"""Recomputes only as many blocks of each class as have to be, where DeepSpeed's choice recomputes whole classes.

The cost table has whole classes: each number of blocks would be a choice of its own, and none of them has degrees of
its own in DeepSpeed. Of the class that is chosen to be recomputed the first blocks stay so, as few as fit: what they
save is alive from forward to their backward, the longest of all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

from costmodels.assign import assign
from costmodels.engine import Engine
from costmodels.strategy import Strategy
from planner.choose.candidate import Candidate
from planner.choose.changed import changed, peak_bytes_of
from planner.choose.setting import Setting


def recompute_fewer(asked: Setting, engine: Engine, chosen: Candidate) -> Candidate:
    """Returns a choice with the fewest recomputed blocks that fit, class by class; the choice itself where all have to.

    Args:
        asked: Model, machine and job; one that asks for full recomputation gets it.
        engine: The choice's.
        chosen: It fits.
    """
    if asked.job.recompute == "full" or not chosen.fits:
        return chosen
    of_class: dict[int, list[int]] = {}
    strategies: dict[int, Strategy] = {}
    for number, block in enumerate(chosen.workload.blocks):
        strategies[number] = chosen.assignment[block.block_class]
        if block.recomputable and strategies[number].recompute == "full":
            of_class.setdefault(block.block_class, []).append(number)
    before, peak_bytes = strategies, chosen.predicted.memory.peak_bytes
    for blocks in of_class.values():
        strategies, peak_bytes = _fewest(asked, engine, chosen, strategies, blocks, peak_bytes)
    workload, assignment = assign(chosen.workload, strategies)
    if (workload, assignment) == assign(chosen.workload, before):
        return chosen
    fewer = changed(asked, engine, chosen, assignment, workload)
    return fewer if fewer.fits and fewer.predicted.step_s < chosen.predicted.step_s else chosen


def _fewest(
    asked: Setting,
    engine: Engine,
    chosen: Candidate,
    strategies: dict[int, Strategy],
    blocks: list[int],
    peak_bytes: int,
) -> tuple[dict[int, Strategy], int]:
    """Returns the strategies with the fewest first of these blocks recomputed with which the step fits, and its peak.

    Args:
        asked: As for `recompute_fewer`.
        engine: The same.
        chosen: The same.
        strategies: Of each block; with these the step fits.
        blocks: All of one class.
        peak_bytes: With these strategies.
    """

    def with_first(number: int) -> dict[int, Strategy]:
        once = {block: replace(strategies[block], recompute="none") for block in blocks[number:]}
        return {**strategies, **once}

    def peak_with_first(number: int) -> int:
        workload, assignment = assign(chosen.workload, with_first(number))
        found = peak_bytes_of(engine, chosen, assignment, workload)
        return sys.maxsize if found is None else found

    number, found_bytes = fewest_within(asked.budget_bytes, peak_with_first, (len(blocks), peak_bytes))
    return with_first(number), found_bytes


def fewest_within(budget: int, of: Callable[[int], int], enough: tuple[int, int]) -> tuple[int, int]:
    """Returns the least number whose value is within a budget, and that value.

    A value takes long, and mostly falls by as much from each number to the next. So what is looked at is in turn where
    the straight line between the bracket's ends comes to the budget, the neighbour of that, and the middle.

    Args:
        budget: The most that a value may be.
        of: The value of a number from 0 on, which does not rise.
        enough: A number whose value is within the budget, and the value.
    """
    high, high_value = enough
    if high == 0:
        return enough
    low, low_value = 0, of(0)
    if low_value <= budget:
        return low, low_value
    guesses = cycle(("line", "beside", "middle"))
    number = low
    while high - low > 1:
        guess = next(guesses)
        if guess == "line":
            number = low + -(-(low_value - budget) * (high - low) // max(1, low_value - high_value))
        elif guess == "beside":
            number = high - 1 if number == high else low + 1
        else:
            number = (low + high) // 2
        number = min(max(number, low + 1), high - 1)
        value = of(number)
        if value <= budget:
            high, high_value = number, value
        else:
            low, low_value = number, value
    return high, high_value
