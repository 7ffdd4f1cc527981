"""The stages of planning; `pipeline.py` joins them.

`from planner import plan, estimate, pareto, sweep` is the library for schedulers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from planner.job import Job
from planner.plan import Infeasible, ParetoPoint, Plan

if TYPE_CHECKING:
    from planner.pipeline import estimate, pareto, plan, sweep

__all__ = ["Infeasible", "Job", "ParetoPoint", "Plan", "estimate", "pareto", "plan", "sweep"]


def _of_pipeline(name: str) -> property:
    def read(_: ModuleType) -> Callable[..., Any]:
        from planner import pipeline

        function: Callable[..., Any] = getattr(pipeline, name)
        return function

    def keep(_: ModuleType, __: object) -> None:
        """Importing the submodule of the same name would set it here, in the function's place."""

    return property(read, keep)


class _Front(ModuleType):
    """The package, with the pipeline imported on first use: the solver takes a second that `--help` need not wait."""

    plan = _of_pipeline("plan")
    estimate = _of_pipeline("estimate")
    pareto = _of_pipeline("pareto")
    sweep = _of_pipeline("sweep")


vars(sys.modules[__name__]).pop("plan", None)  # set by the import of planner.plan above
sys.modules[__name__].__class__ = _Front
