"""A plan as one self-contained page: what was chosen, its timeline, where time, memory and traffic go, and the rest."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from planner.plan import Plan
from planner.report.figures import bytes_text, count_text, plural, seconds_text, share_text
from planner.report.lanes import LETTERS, kind_of
from planner.report.names import plan_name
from planner.report.page_style import STYLE
from planner.report.page_tables import (
    alternatives_rows,
    memory_table,
    strategies_table,
    time_table,
    traffic_table,
)
from planner.report.plan import ENGINE_NAMES
from planner.report.timeline_svg import timeline_figures
from planner.simulate.timeline import Timeline

PAGE_FILE = "report.html"


def report_html(plan: Plan, timeline: Timeline, block_names: Sequence[str]) -> str:
    """Returns the page as HTML that needs nothing else: no script, no font, no network.

    Args:
        plan: Of `plan` or `estimate`.
        timeline: Its step, played through.
        block_names: Of the model's blocks, in their order.
    """
    name = f"{plan_name(plan.strategies, plan.hardware)} on {ENGINE_NAMES[plan.engine]}"
    sections = [
        f"<h1>{escape(name)}</h1>{_question(plan)}",
        _tiles(plan),
        *(f'<p class="warning">{escape(text)}</p>' for text in plan.warnings),
        _section("Timeline of an optimizer step", _legend(timeline) + timeline_figures(timeline, block_names)),
        _section("Strategies", strategies_table(plan)),
        _section("Time of a step, at best", time_table(plan)),
        _section(f"Memory of a rank at the peak, {plan.predicted.memory.peak_phase}", memory_table(plan)),
        _section("Traffic of a rank and step", traffic_table(plan)) if plan.predicted.traffic else "",
        _section("Alternatives", alternatives_rows(plan)) if plan.alternatives else "",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(plan.model.name)}: {escape(name)}</title><style>{STYLE}</style></head>\n"
        f"<body>{chr(10).join(section for section in sections if section)}</body></html>\n"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def _question(plan: Plan) -> str:
    job, hardware, model = plan.job, plan.hardware, plan.model
    nodes = hardware.world_size // hardware.ranks_per_node
    length = f" of {plural(job.sequence_length, 'token')}" if job.sequence_length else ""
    lines = (
        f"{model.name}, {count_text(model.num_params)} parameters, {job.precision}, {job.optimizer}; "
        f"{hardware.name}, {plural(nodes, 'node')} × {plural(hardware.ranks_per_node, 'rank')}",
        f"{plural(job.global_batch_size, 'sample')}{length} = {job.micro_batch_size:,} × "
        f"{plural(job.num_micro_batches, 'micro-batch')} × {plural(hardware.world_size, 'rank')}; {_proof(plan)}",
    )
    return "".join(f'<p class="dim">{escape(line)}</p>' for line in lines)


def _proof(plan: Plan) -> str:
    solver = plan.solver
    if solver.status == "FIXED":
        return "a strategy that was given, not chosen"
    count = plural(solver.num_strategies, "combination")
    if solver.status == "FEASIBLE":
        return f"the fastest found of {count}; another could save at most {100 * solver.gap:.1f}%"
    if solver.decided_by == "simulation":
        return f"fastest when played through, of those near the best bound of {count}"
    if solver.decided_by == "blocks":
        return f"fastest of {count}, with as few blocks recomputed as fit"
    if solver.decided_by == "alike":
        return f"one strategy for all blocks, as fast as the proved fastest of {count} to a thousandth"
    return f"proved fastest of {count} under the cost model"


def _tiles(plan: Plan) -> str:
    predicted, memory = plan.predicted, plan.predicted.memory
    rate = f"{'tokens' if plan.job.sequence_length else 'samples'}/s"
    figures = [("step, the bound", seconds_text(predicted.step_s))]
    if predicted.simulated_step_s is not None:
        figures.append(("step, played through", seconds_text(predicted.simulated_step_s)))
    figures += [
        (rate, f"{predicted.tokens_per_s:,.0f}"),
        ("MFU", f"{100 * predicted.mfu:.1f}%"),
        ("exposed communication", share_text(predicted.exposed_communication_s, predicted.step_s)),
        (f"peak of {bytes_text(memory.budget_bytes)}", bytes_text(memory.peak_bytes)),
    ]
    tiles = "".join(f'<div class="tile"><b>{escape(b)}</b><span>{escape(name)}</span></div>' for name, b in figures)
    return f'<div class="tiles">{tiles}</div>'


def _legend(timeline: Timeline) -> str:
    kinds = {kind_of(event) for part in timeline.parts for event in part.events}
    listed = "".join(
        f'<span><i class="{kind}"></i>{kind.replace("_", "-")}</span>' for kind in LETTERS if kind in kinds
    )
    return f'<div class="legend">{listed}</div>'
