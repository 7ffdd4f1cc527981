"""What can be chosen beside a strategy: which classes of blocks are recomputed, and what is looked at at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from costmodels.engine import Assignment, Engine
from costmodels.strategy import Recompute, StepShape, Strategy
from costmodels.workload import Workload
from planner.cost_table import CostTable, Recomputed

MAX_GROUPS = 4
"""More classes of recomputable blocks than this share the last boolean: each boolean doubles the work of a row."""

HasRoom = Callable[[Strategy, StepShape], bool]
"""Whether a strategy is looked at in a shape at all."""

_ALLOWED: dict[str, tuple[bool, ...]] = {"auto": (False, True), "none": (False,), "full": (True,)}


def always(strategy: Strategy, shape: StepShape) -> bool:
    """Returns True: every strategy is looked at in every shape."""
    del strategy, shape
    return True


def no_choices(workload: Workload, engine: Engine, budget_bytes: int) -> CostTable:
    """Returns the table of an engine without its options: classes of blocks are recomputed alone, or the rest together.

    Args:
        workload: The traced step.
        engine: Whose table it is.
        budget_bytes: Device memory that a step may use.
    """
    classes = sorted({block.block_class for block in workload.blocks if block.recomputable})
    alone, together = classes[: MAX_GROUPS - 1], classes[MAX_GROUPS - 1 :]
    groups = (*((number,) for number in alone), *([tuple(together)] if together else []))
    return CostTable(engine.name, workload.num_classes, groups, (), budget_bytes)


def may_recompute(table: CostTable, recompute: Recompute | str) -> tuple[tuple[bool, ...], ...]:
    """Returns for each group of classes what can be chosen, ascending; `recompute` is `auto`, `none` or `full`."""
    return (_ALLOWED[recompute],) * len(table.groups)


def assignments(
    workload: Workload,
    engine: Engine,
    table: CostTable,
    strategy: Strategy,
    shape: StepShape,
    values: Sequence[Sequence[bool]],
) -> Iterator[tuple[Recomputed, Assignment]]:
    """Yields what a strategy can recompute in a shape, with the assignment that does; not what the engine refuses."""
    if engine.refusal(workload, (strategy,) * workload.num_classes, shape) is not None:
        return
    for recomputed in product(*values):
        assignment = table.assignment(strategy, recomputed)
        if not any(recomputed) or engine.refusal(workload, assignment, shape) is None:
            yield recomputed, assignment
