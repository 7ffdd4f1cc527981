"""Recomputes only as many blocks of each class as have to be, where DeepSpeed's choice recomputes whole classes.

The cost table has whole classes: each number of blocks would be a choice of its own, and none of them has degrees of
its own in DeepSpeed. Of the class that is chosen to be recomputed the first blocks stay so, as few as fit: what they
save is alive from forward to their backward, the longest of all.
"""

from __future__ import annotations

from dataclasses import replace

from costmodels.assign import assign
from costmodels.engine import Engine
from costmodels.strategy import Strategy
from planner.choose.candidate import Candidate
from planner.choose.changed import changed, would_fit
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
    before = strategies
    for blocks in of_class.values():
        strategies = _fewest(asked, engine, chosen, strategies, blocks)
    workload, assignment = assign(chosen.workload, strategies)
    if (workload, assignment) == assign(chosen.workload, before):
        return chosen
    fewer = changed(asked, engine, chosen, assignment, workload)
    return fewer if fewer.fits and fewer.predicted.step_s < chosen.predicted.step_s else chosen


def _fewest(
    asked: Setting, engine: Engine, chosen: Candidate, strategies: dict[int, Strategy], blocks: list[int]
) -> dict[int, Strategy]:
    """Returns the strategies with the fewest first of these blocks recomputed with which the step fits."""

    def with_first(number: int) -> dict[int, Strategy]:
        once = {block: replace(strategies[block], recompute="none") for block in blocks[number:]}
        return {**strategies, **once}

    too_few, enough = -1, len(blocks)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        workload, assignment = assign(chosen.workload, with_first(middle))
        if would_fit(asked, engine, chosen, assignment, workload):
            enough = middle
        else:
            too_few = middle
    return with_first(enough)
