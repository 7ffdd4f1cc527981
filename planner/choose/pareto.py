"""Says what each amount of memory buys in step time, over the whole search space."""

from __future__ import annotations

from planner.choose.candidate import planned_strategies
from planner.choose.front import front
from planner.choose.setting import Setting
from planner.choose.systems import name_of, systems
from planner.cost_table import CostTable
from planner.errors import InputError
from planner.plan import ParetoPoint


def pareto(asked: Setting, table: CostTable) -> tuple[ParetoPoint, ...]:
    """Returns the points that none of the table dominates in step time and memory per rank, the fastest first.

    Args:
        asked: Model, machine and job; its memory budget does not count.
        table: The costs of the search space.

    Raises:
        InputError: The job limits the solver's seconds, and a front is exact or nothing.
    """
    if asked.job.solve_time_limit_s is not None:
        raise InputError(
            "a Pareto front is exact, and a limit of seconds on the solver may leave it unproved: give either --pareto "
            "or --solve-time-limit"
        )
    known = systems(asked.machine.level_sizes, asked.machine.ranks_per_node)
    return tuple(
        ParetoPoint(
            strategies=planned_strategies(asked.workload, table.assignment(option.strategy, point.recomputed)),
            micro_batch_size=option.shape.micro_batch_size,
            step_s=point.objective / 1e9,
            peak_bytes=option.peak_bytes(point.recomputed),
            name=name_of(option.strategy, known),
        )
        for point in front(table)
        for option in (point.option,)
    )
