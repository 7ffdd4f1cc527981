"""What a run changed in its machine's profile, for people."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.calibrate import Calibrated
from planner.report.figures import difference_text, seconds_text


def calibration_page(found: Calibrated, written_to: Path) -> RenderableType:
    """Returns each figure as it was predicted and timed, and the step as it is predicted now."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("by itself", no_wrap=True)
    for name in ("predicted", "timed", "difference", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.figures:
        difference = difference_text(each.measured_s, each.predicted_s)
        folded = "folded in" if each.is_folded else "within its timings"
        cells = (seconds_text(each.predicted_s), seconds_text(each.measured_s), difference, folded)
        table.add_row(each.name, *cells)
    before, after, measured = (seconds_text(each) for each in (found.before_s, found.after_s, found.measured_s))
    step = Text(f"\nStep played through: {before} before, {after} now, measured {measured}")
    where = Text(f"Written to {written_to}\nNext: shardplan plan MODEL --hardware {written_to} --global-batch-size B")
    return Group(Text("\nCalibration", style="bold"), table, step, where)
