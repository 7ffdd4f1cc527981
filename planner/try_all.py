"""Chooses from a small cost table by trying every choice of it: the same answer as `planner.solve`, without a model."""

from __future__ import annotations

import time

from planner.cost_table import CostTable
from planner.solve import FASTEST, Objective, Objectives, Solution

MOST_TRIED = 4096
"""Choices up to which trying them all is quicker than proving one of them to be the best."""


def try_all(table: CostTable, objectives: Objectives = FASTEST, budget_bytes: int | None = None) -> Solution | None:
    """Returns the table's best choice within the budget, or None when no choice fits.

    Args:
        table: The options with their costs.
        objectives: What to minimise, the most important first.
        budget_bytes: Bytes of device memory; the table's own budget when None.
    """
    started_s = time.perf_counter()
    limit_bytes = table.budget_bytes if budget_bytes is None else budget_bytes

    def figure(objective: Objective, step_ns: int, peak_bytes: int) -> int:
        return {"time": step_ns, "memory": peak_bytes, "order": 0}[objective]

    figures = [
        (tuple(figure(objective, step_ns, peak_bytes) for objective in objectives), number, recomputed)
        for number, option in enumerate(table.options)
        for recomputed in option.recomputations()
        if (peak_bytes := option.peak_bytes(recomputed)) <= limit_bytes
        for step_ns in (option.step_ns(recomputed),)
    ]
    if not figures:
        return None
    # What is left equal, the table's order decides.
    best, number, recomputed = min(figures)
    return Solution(
        option=table.options[number],
        recomputed=recomputed,
        status="OPTIMAL",
        objective=best[0],
        bound=best[0],
        num_strategies=table.num_strategies,
        wall_s=time.perf_counter() - started_s,
    )
