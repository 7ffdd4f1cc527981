"""Finds the Pareto front of step time and memory: what each further byte of memory buys, exactly.

The solver is asked again and again with a budget of one byte less than its last answer's peak, from the fastest choice
down to where nothing fits. Its order (time, then memory, then the table's) makes each answer the smallest of the
fastest, so that none is dominated, and every point that none dominates is met.

Source: the epsilon-constraint method of Haimes, Lasdon and Wismer (1971).
"""

from __future__ import annotations

from planner.cost_table import CostTable
from planner.errors import UnsolvedError
from planner.solve import Solution, solve


def front(table: CostTable) -> tuple[Solution, ...]:
    """Returns the choices that no other one dominates, the fastest first; the table's own budget does not count.

    Of choices that are equal in both, the first of the table's order stands for all. So the first point within a budget
    is what `solve` chooses for that budget.

    Raises:
        UnsolvedError: The limit of work came before a point was proved.
    """
    points: list[Solution] = []
    budget_bytes = table.enough_bytes
    while budget_bytes >= 0:
        point = solve(table, budget_bytes=budget_bytes)
        if point is None:
            break
        if point.status != "OPTIMAL":
            raise UnsolvedError(
                f"the fastest of {table.num_strategies:,} combinations within {budget_bytes:,} bytes was not proved "
                f"within the limit of work, so there is no exact front; choose from fewer, by --micro-batch-size or "
                "--recompute"
            )
        points.append(point)
        budget_bytes = point.option.peak_bytes(point.recomputed) - 1
    return tuple(points)
