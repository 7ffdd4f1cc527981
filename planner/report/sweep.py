"""The table of a sweep: for each size of the machine a plan, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table

from planner.plan import Infeasible, Plan
from planner.report.figures import bytes_text, seconds_text
from planner.report.names import degrees_text, plan_name


def sweep_table(answers: Sequence[Plan | Infeasible]) -> RenderableType:
    """Returns one line per size, in the order asked."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("ranks", "strategy", "p, g, o", "batch", "step", "tokens/s", "MFU", "peak"):
        table.add_column(name, justify="left" if name in ("strategy", "p, g, o") else "right", no_wrap=True)
    for answer in answers:
        if isinstance(answer, Infeasible):
            reason = f"nothing fits: needs {bytes_text(answer.needed_bytes)}, has {bytes_text(answer.available_bytes)}"
            table.add_row(str(answer.world_size), reason, style="red")
            continue
        predicted, job = answer.predicted, answer.job
        table.add_row(
            str(answer.hardware.world_size),
            plan_name(answer.strategies, answer.hardware),
            degrees_text(answer.strategies),
            f"{job.micro_batch_size} × {job.num_micro_batches}",
            seconds_text(predicted.step_s),
            f"{predicted.tokens_per_s:,.0f}",
            f"{100 * predicted.mfu:.1f}%",
            bytes_text(predicted.memory.peak_bytes),
        )
    return table
