"""The progress of a run or a measurement on standard error: a bar, or a line per step where no terminal is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from planner.report.figures import seconds_text

OnStep = Callable[[int, float, float], None]
"""Called after each step with its number from 1, its loss, and its seconds."""
OnPart = Callable[[str, float | None], None]
"""Called with what is measured next and which part of all is done, 0 to 1; a part of None marks a note to be kept."""


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


@contextmanager
def measure_progress() -> Iterator[OnPart]:
    """Yields what is to be called with what is measured next.

    Nothing appears before it is called: of several ranks only one has anything to say.
    """
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda text, part: console.print(_line(text, part), soft_wrap=True)
        return
    columns = (
        TextColumn("measuring"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    progress = Progress(*columns, console=console, transient=True)
    task = progress.add_task("", total=1.0)

    def on_part(text: str, part: float | None) -> None:
        if part is None:
            console.print(text, soft_wrap=True)
            return
        progress.update(task, completed=part, description=text)
        progress.start()

    try:
        yield on_part
    finally:
        progress.stop()


def _line(text: str, part: float | None) -> str:
    return text if part is None else f"measuring: {text}, {part:.0%} done"


def _figures(loss: float, seconds: float) -> str:
    return f"loss {loss:.4f}  {seconds_text(seconds)}"
