"""The page of a plan, from what it was planned from."""

from __future__ import annotations

from hw_profiles.schema import HardwareProfile
from planner.choose.timeline_of import timeline_of
from planner.machine import machine
from planner.model_graph import ModelGraph
from planner.plan import Plan
from planner.report.page import PAGE_FILE, report_html

__all__ = ["PAGE_FILE", "report_of"]


def report_of(plan: Plan, graph: ModelGraph, profile: HardwareProfile) -> str:
    """Returns the page of a plan as HTML.

    Args:
        plan: Of `plan` or `estimate`.
        graph: The model that it was planned from.
        profile: The machine that it was planned for.
    """
    timeline = timeline_of(plan, graph, machine(profile, plan.job.precision, graph))
    return report_html(plan, timeline, [block.name for block in graph.workload.blocks])
