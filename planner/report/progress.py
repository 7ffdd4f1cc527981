"""The progress of a run on standard error: a bar with loss and step time, or a line per step where no terminal is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from planner.report.figures import seconds_text

OnStep = Callable[[int, float, float], None]
"""Called after each step with its number from 1, its loss, and its seconds."""


@contextmanager
def run_progress(num_steps: int) -> Iterator[OnStep]:
    """Yields what is to be called after each of `num_steps` steps."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda step, loss, seconds: console.print(f"step {step}/{num_steps}  {_figures(loss, seconds)}")
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting the ranks", total=num_steps, figures="")

        def on_step(step: int, loss: float, seconds: float) -> None:
            progress.update(task, completed=step, description="training", figures=_figures(loss, seconds))

        yield on_step


def _figures(loss: float, seconds: float) -> str:
    return f"loss {loss:.4f}  {seconds_text(seconds)}"
