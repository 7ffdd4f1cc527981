"""Finds the least further sharding with which a strategy that does not fit would."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from costmodels.degrees import strategies
from costmodels.engine import Engine
from costmodels.states import model_state_bytes
from costmodels.strategy import Strategy
from planner.choose.candidate import Candidate
from planner.choose.compete import best, candidate, smallest, table_of
from planner.choose.setting import Setting

MOST_TRIED = 32
"""Points that are evaluated at most; those whose model states alone are too much do not count."""


def larger(asked: Setting, strategy: Strategy, engines: tuple[Engine, ...]) -> Candidate | None:
    """Returns the nearest point that shards no less and fits, at its best; None where none of those tried does.

    Nearest: the fewest doublings of degrees, then the order of the space. What is gathered anew for backward stays so.

    Args:
        asked: Model, machine and job.
        strategy: What does not fit.
        engines: Those that may have it, the preferred one first.
    """
    for engine, other in _rising(asked, strategy, engines):
        least = replace(asked, shapes=asked.shapes[:1])
        table = table_of(least, engine, (other,))
        solution = smallest(table)
        if solution.option.peak_bytes(solution.recomputed) <= asked.budget_bytes:
            whole = table_of(asked, engine, (other,))
            return candidate(asked, engine, "", whole, best(whole))
    return None


def _rising(asked: Setting, strategy: Strategy, engines: tuple[Engine, ...]) -> Iterator[tuple[Engine, Strategy]]:
    """Yields points that shard no less, each with the first engine that has it, by distance."""
    found = [
        (engine, other)
        for other in strategies(asked.machine.level_sizes)
        if other != strategy and _is_larger(other, strategy) and _states_bytes(asked, other) <= asked.budget_bytes
        for engine in _able(asked, other, engines)[:1]
    ]
    yield from sorted(found, key=lambda each: _doublings(each[1], strategy))[:MOST_TRIED]


def _is_larger(other: Strategy, strategy: Strategy) -> bool:
    if any(its < mine for its, mine in zip(_four(other), _four(strategy), strict=True)):
        return False
    gathers_anew = strategy.secondary_degree == strategy.param_degree
    return not gathers_anew or other.secondary_degree == other.param_degree


def _doublings(other: Strategy, strategy: Strategy) -> float:
    return math.log2(math.prod(_four(other)) / math.prod(_four(strategy)))


def _four(strategy: Strategy) -> tuple[int, int, int, int]:
    return (strategy.param_degree, strategy.secondary_degree, strategy.grad_degree, strategy.optim_degree)


def _states_bytes(asked: Setting, strategy: Strategy) -> int:
    return model_state_bytes(asked.workload, (strategy,) * asked.workload.num_classes, asked.shapes[0]).total_bytes


def _able(asked: Setting, strategy: Strategy, engines: tuple[Engine, ...]) -> list[Engine]:
    assignment = (strategy,) * asked.workload.num_classes
    return [each for each in engines if each.refusal(asked.workload, assignment, asked.shapes[0]) is None]
