"""Plots of `accuracy_and_regret.py`; they need matplotlib, which this project does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accuracy_figures import Kept, measured_s, plan_of, predicted, predicted_s, ran, rivals


def plot_steps(kept: Sequence[Kept], path: Path) -> None:
    """Draws measured over predicted seconds of every way to train, by engine."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 6), dpi=120)
    for engine, colour in (("deepspeed", "tab:blue"), ("fsdp", "tab:orange")):
        rows = [row for scenario in kept for row in predicted(scenario) if row["engine"] == engine]
        axes.scatter(
            [predicted_s(row) for row in rows], [measured_s(row) for row in rows], s=10, c=colour, label=engine
        )
    ends = [bound for bounds in (axes.get_xlim(), axes.get_ylim()) for bound in bounds if bound > 0]
    line = (min(ends), max(ends))
    axes.plot(line, line, c="black", lw=0.8)
    for factor in (0.8, 1.2):
        axes.plot(line, [end * factor for end in line], c="grey", lw=0.6, ls="--")
    axes.set(xscale="log", yscale="log", xlabel="predicted step, s", ylabel="measured step, s")
    _plain_numbers(axes.xaxis, axes.yaxis)
    axes.legend(title="dashed: 20 % more or less")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def plot_regret(kept: Sequence[Kept], path: Path) -> None:
    """Draws, for each scenario, the seconds of every way to train over the fastest's, with plan and ZeRO-3 marked."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.3 * len(kept)), dpi=120)
    for place, scenario in enumerate(kept):
        least = min(map(measured_s, ran(scenario)))
        others = [measured_s(row) / least for row in ran(scenario)]
        axes.scatter(others, [place] * len(others), s=12, c="lightgrey")
        chosen = plan_of(scenario)
        zero3 = [row for row in ran(scenario) if row["name"] == rivals(scenario)["ZeRO-3"]]
        marks = (([chosen] if chosen else [], "tab:green", "plan"), (zero3, "tab:red", "default ZeRO-3"))
        for rows, colour, label in marks:
            values = [measured_s(row) / least for row in rows]
            axes.scatter(values, [place] * len(values), s=28, c=colour, label=None if place else label)
    axes.set(xscale="log", xlabel="measured step over the fastest way's", yticks=range(len(kept)))
    axes.set_yticklabels([scenario["name"] for scenario in kept], fontsize=7)
    axes.invert_yaxis()
    _plain_numbers(axes.xaxis)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _plain_numbers(*of_axes: Any) -> None:
    """Writes 2 in place of 2 x 10^0."""
    from matplotlib.ticker import FormatStrFormatter

    for each in of_axes:
        each.set_major_formatter(FormatStrFormatter("%g"))
        each.set_minor_formatter(FormatStrFormatter("%g"))
