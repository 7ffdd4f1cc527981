"""Searches the spaces of both engines, and says of the one that is not taken what it would have given."""

from __future__ import annotations

from dataclasses import replace

from planner.choose.candidate import Candidate
from planner.choose.infeasible import infeasible
from planner.choose.near_best import with_played
from planner.choose.search import Found, find, least_of_deepspeed, plan_of
from planner.choose.search_blocks import (
    NEAR,
    FoundBlocks,
    find_blocks,
    least_of_fsdp,
    plan_of_blocks,
    refusal_of_fsdp,
    search_blocks,
)
from planner.choose.setting import Setting
from planner.choose.space import space
from planner.choose.suggestions import Smallest
from planner.errors import InputError, UnsolvedError
from planner.plan import Infeasible, Plan

MARGIN = 0.02
"""DeepSpeed is taken where its step is longer than the best of both by this part of it at most: its configuration alone
is enough for a script of the user's own."""


def search_both(asked: Setting) -> Plan | Infeasible:
    """Returns the fastest plan that fits on either engine, on DeepSpeed where that costs little, or why nothing does.

    Raises:
        InputError: Neither engine can train this.
        UnsolvedError: The solver's limit came before any choice that fits was found.
    """
    has_fsdp = refusal_of_fsdp(asked) is None
    try:
        found = find(asked, space(asked))
    except InputError:
        if not has_fsdp:
            raise
        return search_blocks(asked)
    if not has_fsdp:
        return infeasible(asked, least_of_deepspeed) if found is None else plan_of(asked, found, ())
    return _without_deepspeed(asked) if found is None else _faster(asked, found)


def _without_deepspeed(asked: Setting) -> Plan | Infeasible:
    blocks = find_blocks(asked)
    return infeasible(asked, _smallest(asked)) if blocks is None else plan_of_blocks(asked, blocks, ())


def _faster(asked: Setting, found: Found) -> Plan:
    """Returns DeepSpeed's plan, or that of the fsdp engine where it is faster by more than the margin, both played."""
    step_s = found.decision.timeline.step_s
    blocks = _in_time(asked, NEAR)
    if blocks is not None:
        solution = blocks.solution
        if step_s * solution.step_ns > (1 + MARGIN) * blocks.timeline.step_s * solution.bound:
            # That it is the faster one by the margin, or that it is none, is known of its best alone.
            blocks = _in_time(asked, near=blocks) or blocks
    if blocks is None:
        return plan_of(asked, found, ())
    if step_s <= (1 + MARGIN) * blocks.timeline.step_s:
        return plan_of(asked, found, (_named(blocks.played),))
    return plan_of_blocks(asked, blocks, (_named(with_played(found.chosen, step_s)),))


def _in_time(asked: Setting, gap: float = 0.0, near: FoundBlocks | None = None) -> FoundBlocks | None:
    try:
        return find_blocks(asked, gap, near)
    except UnsolvedError:
        return None


def _named(best: Candidate) -> Candidate:
    return replace(best, name=f"best of {best.engine}: {best.name.removeprefix('strategies ')}")


def _smallest(question: Setting) -> Smallest:
    """Returns what finds the choice of least memory on either engine; DeepSpeed's where that fits."""
    ours = least_of_fsdp(question)

    def least(asked: Setting) -> Candidate:
        theirs = least_of_deepspeed(asked)
        if theirs.fits or refusal_of_fsdp(asked) is not None:
            return theirs
        return min((theirs, ours(asked)), key=lambda each: each.predicted.memory.peak_bytes)

    return least
