"""Sends the collectives of a choice level by level, class by class, where a step is then faster."""

from __future__ import annotations

from dataclasses import replace

from costmodels.fsdp import FSDP
from planner.choose.candidate import Candidate
from planner.choose.changed import changed
from planner.choose.setting import Setting

WORTH = 0.01
"""Part of a step that has to be gained: less than that is within what two ways of sending are known to differ by."""


def level_by_level(asked: Setting, chosen: Candidate) -> Candidate:
    """Returns the choice of the fsdp engine with each class of blocks sent in the way that is predicted to be faster.

    In stages, ranks start up among fewer others at a time; at once, the levels work side by side. Either all classes
    begin in stages or none, whichever is faster, and then one after the other changes where the step gains by it: a
    step counts the longest message by itself, so that one class alone may gain nothing.

    Args:
        asked: Model, machine and job.
        chosen: What the search found, sent at once.
    """
    if sum(size > 1 for size in asked.machine.level_sizes) < 2:
        return chosen
    everywhere = tuple(
        # What is quantized goes its own way through the levels.
        replace(each, hierarchical=not (each.quantized_weights or each.quantized_gradients))
        for each in chosen.assignment
    )
    best = _faster(chosen, changed(asked, FSDP, chosen, everywhere))
    for number, flippable in enumerate(everywhere):
        if flippable.hierarchical:
            assignment = list(best.assignment)
            assignment[number] = replace(assignment[number], hierarchical=not assignment[number].hierarchical)
            best = _faster(best, changed(asked, FSDP, best, tuple(assignment)))
    return best if best.predicted.step_s < (1 - WORTH) * chosen.predicted.step_s else chosen


def _faster(one: Candidate, other: Candidate) -> Candidate:
    is_faster = other.predicted.step_s < one.predicted.step_s
    return other if is_faster and (other.fits or not one.fits) else one
