"""Takes one strategy for all blocks where that is as fast as strategies by class of blocks, or faster when played.

The search by class minimises a bound of the step, and of equal ones the memory: what gains nothing but a few bytes may
mix strategies, or recompute beside messages that take longer. One strategy for all has fewer kinds of groups and
messages, and a person can say what it is. So each strategy of the choice is tried for all of its blocks, with what it
recomputes and with nothing recomputed, and played through like the choice itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from costmodels.fsdp import FSDP
from costmodels.strategy import Strategy
from planner.choose.candidate import Candidate
from planner.choose.changed import changed
from planner.choose.near_best import FASTER_PARTS, overruled
from planner.choose.play import play
from planner.choose.setting import Setting
from planner.choose.systems import name_of, systems


@dataclass(frozen=True, slots=True)
class Settled:
    """The choice that is taken."""

    candidate: Candidate
    by: Literal["bound", "simulation", "alike"]
    """simulation: faster when played through than the bound's own. alike: as fast, with one strategy for all."""
    warnings: tuple[str, ...] = ()
    """What the bound preferred, where that is slower when played through."""


def settle(asked: Setting, chosen: Candidate) -> Settled:
    """Returns the fastest, when played through, of the choice and each of its strategies taken for all blocks.

    What is within a thousandth is as fast; of these one strategy for all is preferred.

    Args:
        asked: Model, machine and job.
        chosen: What the search by class of blocks found.
    """
    own_s = chosen.predicted.step_s
    distinct = dict.fromkeys(replace(each, recompute="none") for each in chosen.assignment)
    if any(each.quantized_weights or each.quantized_gradients for each in distinct):
        return Settled(chosen, "bound")
    recomputes = any(each.recompute == "full" for each in chosen.assignment)
    others = [
        (strategy, again)
        for strategy in distinct
        for again in ((True, False) if recomputes and asked.job.recompute == "auto" else (recomputes,))
        if len(distinct) > 1 or again != recomputes
    ]
    if not others:
        return Settled(chosen, "bound")
    played_s = _played_s(asked, chosen)
    # A step is mostly not faster than its bound; where the choice is, a rival whose bound is as good can be too.
    limit_s = max(played_s, own_s)
    rivals: list[tuple[float, int, int, Candidate]] = []
    for strategy, again in others:
        rival = _for_all(asked, chosen, strategy, again)
        if rival is not None and rival.fits and rival.predicted.step_s * FASTER_PARTS <= limit_s * 1000:
            rivals.append((_played_s(asked, rival), rival.predicted.memory.peak_bytes, len(rivals), rival))
    if not rivals:
        return Settled(chosen, "bound")
    rival_s, _, _, rival = min(rivals)
    if rival_s * FASTER_PARTS <= played_s * 1000 and rival.predicted.step_s * FASTER_PARTS <= own_s * 1000:
        return Settled(rival, "alike")
    if rival_s * 1000 < played_s * FASTER_PARTS:
        text = overruled((own_s, played_s), (rival.predicted.step_s, rival_s))
        return Settled(rival, "simulation", (text,))
    return Settled(chosen, "bound")


def _played_s(asked: Setting, candidate: Candidate) -> float:
    return play(candidate.workload, FSDP, asked.machine, candidate.assignment, candidate.shape).step_s


def _for_all(asked: Setting, chosen: Candidate, strategy: Strategy, recomputes: bool) -> Candidate | None:
    """Returns the choice with a strategy's degrees for all blocks, and what it recomputes or nothing; None: refused."""
    assignment = tuple(
        replace(strategy, recompute=each.recompute) if recomputes else strategy for each in chosen.assignment
    )
    if FSDP.refusal(chosen.workload, assignment, chosen.shape) is not None:
        return None
    name = name_of(strategy, systems(asked.machine.level_sizes, asked.machine.ranks_per_node))
    return replace(changed(asked, FSDP, chosen, assignment), name=name)
