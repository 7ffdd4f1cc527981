"""The page of `accuracy_and_regret.py`: errors of what was predicted, regret of what was chosen, and what it won."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence

from accuracy_figures import (
    Kept,
    Row,
    by,
    communicates,
    degrees,
    fastest,
    has_exact_bytes,
    is_slow,
    measured_s,
    memory_error,
    plan_of,
    predicted,
    quantiles,
    rank_correlation,
    regret,
    rivals,
    speedup,
    step_error,
)

MISSED = (
    "## What is missed",
    "",
    "- The order within a scenario where ways are as good as each other: of `moe-12m` at 300 Mbit/s the four fastest",
    "  are told within 0.2 % and measured within 4 %, and a way that is measured twice differs by up to 3 %.",
    "- Peaks of models this small: what autograd and gloo keep for a moment is a larger part of them.",
)
"""Causes that were found; figures are in the tables."""


def page(kept: Sequence[Kept], command: str, plots: Sequence[str] = ()) -> str:
    """Returns the page of all scenarios; `plots` are the names of pictures beside it."""
    lines = [
        "# Predicted and measured, and what the plan wins",
        "",
        f"Written by `{command}`; measured on {', '.join(sorted({each['day'] for each in kept}))}, on {os.cpu_count()} "
        f"cores of {platform.machine()}. Nodes are network namespaces; all ranks, gloo and the shaped links share",
        "these cores. A scenario is named by nodes x ranks, the speeds inside and between nodes in 10^6 bits per s,",
        "the model, and M. Every point of both engines is run, the plan, DeepSpeed with its own settings, and",
        "PyTorch's `fully_shard` by itself. Predictions are those of the present code and of the profile that",
        "`shardplan profile` measured there, and so is the plan.",
        "",
        *_summary(kept),
        *(line for plot in plots for line in (f"![{plot}]({plot})", "")),
        *_accuracy(kept),
        *_by_strategy(kept),
        *_regret(kept),
        *MISSED,
        *_connections(kept),
        *_failed(kept),
    ]
    return "\n".join([*lines, ""])


def _connections(kept: Sequence[Kept]) -> list[str]:
    """Returns which scenarios were measured while nodes had the host's own congestion control."""
    before = [scenario["name"] for scenario in kept if "connections" not in scenario]
    if not before:
        return [""]
    lines = [
        "- Nodes' connections were the host's own (BBR) in what follows, and reno's without slow starts in all others:",
        *(f"  `{name}`{',' if name != before[-1] else '.'}" for name in before),
    ]
    return [*lines, ""]


def _summary(kept: Sequence[Kept]) -> list[str]:
    rows = [row for scenario in kept for row in predicted(scenario)]
    judged = [row for row in rows if communicates(row)]
    exact = sum(map(has_exact_bytes, rows))
    lost = sorted(each for each in map(regret, kept) if each is not None)
    won = [each for scenario in kept if is_slow(scenario) and (each := speedup(scenario, rivals(scenario)["ZeRO-3"]))]
    order = [rank_correlation(chosen) for scenario in kept if len(chosen := _judged(scenario)) > 2]
    lines = [
        "| | |",
        "|---|---|",
        f"| scenarios, ways to train | {len(kept)}, {len(rows)} |",
        f"| messages exact, by operation and group | {exact} of {len(rows)} |",
        f"| memory at rest | {_range(memory_error(row, 'at_rest_bytes') for row in rows)} |",
        f"| peak memory | {_range(memory_error(row, 'peak_bytes') for row in rows)} |",
    ]
    large = [row for scenario in kept if _is_large(scenario) for row in predicted(scenario)]
    if large:
        lines.append(f"| of the 60 M-parameter model | {_range(memory_error(row, 'peak_bytes') for row in large)} |")
    lines.append(f"| step: median, 90 %, worst error | {_errors(judged)} |")
    if order:
        lines.append(f"| order by time, Spearman: median, least | {statistics.median(order):.3f}, {min(order):.3f} |")
    if lost:
        lines.append(f"| regret: median, worst | {statistics.median(lost):.1%}, {lost[-1]:.1%} |")
    if won:
        lines.append(f"| over default ZeRO-3 on slow networks, median | {statistics.median(won):.2f}x |")
    return [*lines, ""]


def _is_large(scenario: Kept) -> bool:
    return bool(scenario["scenario"]["model"]["name"] == "gpt-60m")


def _judged(scenario: Kept) -> list[Row]:
    return [row for row in predicted(scenario) if communicates(row)]


def _accuracy(kept: Sequence[Kept]) -> list[str]:
    lines = [
        "## How well it is told",
        "",
        "Bytes: ways to train whose messages are exactly as predicted. Memory: predicted over measured less one, least",
        "and greatest. Step: |predicted / measured - 1|, median, 90th percentile and worst, where messages take 30 %",
        "of the step or more; order: Spearman's rank correlation of these.",
        "",
        "| scenario | ways | bytes exact | at rest | peak | step: median | 90 % | worst | order |",
        "|---|---:|---:|---|---|---:|---:|---:|---:|",
    ]
    for scenario in kept:
        rows, judged = predicted(scenario), _judged(scenario)
        exact = sum(map(has_exact_bytes, rows))
        memory = [_range(memory_error(row, figure) for row in rows) for figure in ("at_rest_bytes", "peak_bytes")]
        order = f"{rank_correlation(judged):.3f}" if len(judged) > 2 else "–"
        lines.append(
            f"| {scenario['name']} | {len(rows)} | {exact} | {memory[0]} | {memory[1]} | "
            f"{_errors(judged).replace(', ', ' | ')} | {order} |"
        )
    return [*lines, ""]


def _by_strategy(kept: Sequence[Kept]) -> list[str]:
    lines = ["## By engine and strategy", "", "Of all scenarios; strategies are p,g,o, with s where it is not p.", ""]
    rows = [row for scenario in kept for row in predicted(scenario)]
    for engine, of_engine in by(rows, lambda row: str(row["engine"])).items():
        lines += [
            f"### {engine}",
            "",
            "| strategy | ways | bytes exact | at rest | peak | step: median | 90 % | worst |",
            "|---|---:|---:|---|---|---:|---:|---:|",
        ]
        for name, chosen in {**by(of_engine, degrees), "all": of_engine}.items():
            rest, peak = (
                _range(memory_error(row, figure) for row in chosen) for figure in ("at_rest_bytes", "peak_bytes")
            )
            errors = _errors([row for row in chosen if communicates(row)]).replace(", ", " | ")
            exact = sum(map(has_exact_bytes, chosen))
            lines.append(f"| {name} | {len(chosen)} | {exact} | {rest} | {peak} | {errors} |")
        lines.append("")
    return lines


def _regret(kept: Sequence[Kept]) -> list[str]:
    lines = [
        "## What the plan wins",
        "",
        "Regret: the plan's seconds over those of the fastest way of all, less one. Then the seconds of what people",
        "take today over the plan's: DeepSpeed's stages 3 and 2 with its own settings, hpZ of a node, PyTorch's",
        "`fully_shard` by itself over all ranks (FSDP2) and within a node (HSDP). Slow: links between nodes (racks)",
        "have a tenth of the speed inside nodes or less.",
        "",
        "| scenario | slow | plan | s | fastest | s | regret | ZeRO-3 | ZeRO-2 | hpZ | FSDP2 | HSDP |",
        "|---|---|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for scenario in kept:
        chosen, best, lost = plan_of(scenario), fastest(scenario), regret(scenario)
        plan = (
            "did not run | –" if chosen is None else f"{chosen['engine']} {degrees(chosen)} | {measured_s(chosen):.2f}"
        )
        times = [_times(speedup(scenario, name)) for name in rivals(scenario).values()]
        lines.append(
            f"| {scenario['name']} | {'yes' if is_slow(scenario) else ''} | {plan} | {best['name']} | "
            f"{measured_s(best):.2f} | {'–' if lost is None else f'{lost:.1%}'} | {' | '.join(times)} |"
        )
    return [*lines, ""]


def _failed(kept: Sequence[Kept]) -> list[str]:
    failed = [(scenario["name"], row) for scenario in kept for row in scenario["rows"] if "measured" not in row]
    if not failed:
        return []
    lines = ["## What did not run", ""]
    return [*lines, *(f"- {name}: {row['name']}: {row['failed'].strip().splitlines()[-1]}" for name, row in failed), ""]


def _errors(rows: Sequence[Row]) -> str:
    found = quantiles(abs(step_error(row)) for row in rows)
    return "–, –, –" if found is None else ", ".join(f"{each:.1%}" for each in found)


def _range(values: Iterable[float]) -> str:
    found = sorted(values)
    return f"{found[0]:+.1%} to {found[-1]:+.1%}" if found else "–"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}x"
