"""The page of `accuracy_and_regret.py`: errors of what was predicted, regret of what was chosen, and what it won."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scipy.stats import spearmanr

TRAFFIC = ("operation", "degree_from", "degree_to", "bytes", "count")
Row = dict[str, Any]


def page(kept: Sequence[dict[str, Any]], command: str) -> str:
    """Returns the page of all scenarios."""
    lines = [
        "# Predicted and measured, and what the plan wins",
        "",
        f"Written by `{command}`; measured on {', '.join(sorted({each['day'] for each in kept}))}, on {os.cpu_count()} "
        f"cores of {platform.machine()}. Nodes are network namespaces; all ranks, gloo and the shaped links share",
        "these cores. A scenario is named by nodes x ranks, the speeds inside and between nodes in 10^6 bits per s,",
        "the model, and M. Every point of both engines is run, the plan, and DeepSpeed with its own settings.",
        "",
        *_accuracy(kept),
        *_by_engine(kept),
        *_regret(kept),
        *_failed(kept),
    ]
    return "\n".join([*lines, ""])


def ran(scenario: dict[str, Any]) -> list[Row]:
    """Returns the ways to train that were measured."""
    return [row for row in scenario["rows"] if "measured" in row]


def step_error(row: Row) -> float:
    """Predicted over measured seconds of a step, less one; predicted is the step played through, where it was."""
    return predicted_s(row) / row["measured"]["step_s"] - 1


def predicted_s(row: Row) -> float:
    """Returns the best prediction of a step's seconds."""
    predicted = row["predicted"]
    return float(predicted["simulated_step_s"] or predicted["step_s"])


def memory_error(row: Row, figure: str) -> float:
    """Predicted over measured bytes, less one."""
    return float(row["predicted"]["memory"][figure] / row["measured"]["memory"][figure] - 1)


def has_exact_bytes(row: Row) -> bool:
    """Whether every operation over every kind of group has the bytes and the number of messages that were predicted."""
    said, seen = (
        sorted(tuple(each[key] for key in TRAFFIC) for each in row[of]["traffic"]) for of in ("predicted", "measured")
    )
    return said == seen


def communicates(row: Row, part: float = 0.3) -> bool:
    """Whether communication is at least so much of the step as predicted."""
    predicted = row["predicted"]
    return bool(predicted["exposed_communication_s"] >= part * predicted["step_s"])


def rank_correlation(rows: Sequence[Row]) -> float:
    """Returns Spearman's rank correlation of predicted and measured seconds."""
    return float(spearmanr([predicted_s(row) for row in rows], [row["measured"]["step_s"] for row in rows]).statistic)


def regret(scenario: dict[str, Any]) -> float | None:
    """Returns the plan's measured seconds over those of the fastest way to train, less one; None: the plan failed."""
    plans = [row for row in ran(scenario) if row["role"] == "plan"]
    if not plans:
        return None
    return plans[0]["measured"]["step_s"] / min(row["measured"]["step_s"] for row in ran(scenario)) - 1


def speedup(scenario: dict[str, Any], is_rival: Callable[[Row], bool]) -> float | None:
    """Returns the seconds of the fastest rival over the plan's; None: one of them did not run."""
    plans = [row for row in ran(scenario) if row["role"] == "plan"]
    rivals = [row["measured"]["step_s"] for row in ran(scenario) if is_rival(row)]
    return min(rivals) / plans[0]["measured"]["step_s"] if plans and rivals else None


def _accuracy(kept: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "## How well it is told",
        "",
        "Bytes: ways to train whose messages are exactly as predicted. Memory: predicted over measured less one, least",
        "and greatest. Step: |predicted / measured - 1| where communication is 30 % of the step or more; order:",
        "Spearman's rank correlation of all.",
        "",
        "| scenario | ways | bytes exact | at rest | peak | step, median | 90 % | worst | order |",
        "|---|---:|---:|---|---|---:|---:|---:|---:|",
    ]
    for scenario in kept:
        rows = ran(scenario)
        errors = sorted(abs(step_error(row)) for row in rows if communicates(row))
        exact = sum(has_exact_bytes(row) for row in rows)
        memory = [_range(memory_error(row, figure) for row in rows) for figure in ("at_rest_bytes", "peak_bytes")]
        lines.append(
            f"| {scenario['name']} | {len(rows)} | {exact} | {memory[0]} | {memory[1]} | {_errors(errors)} | "
            f"{rank_correlation(rows):.3f} |"
        )
    return [*lines, ""]


def _by_engine(kept: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "## By engine",
        "",
        "| engine | ways | bytes exact | step, median | 90 % | worst |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for engine in ("deepspeed", "fsdp"):
        rows = [row for scenario in kept for row in ran(scenario) if row["engine"] == engine]
        errors = sorted(abs(step_error(row)) for row in rows if communicates(row))
        lines.append(f"| {engine} | {len(rows)} | {sum(map(has_exact_bytes, rows))} | {_errors(errors)} |")
    return [*lines, ""]


def _regret(kept: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "## What the plan wins",
        "",
        "Regret: the plan's seconds over those of the fastest way of all, less one. Then the seconds of what people",
        "take today over the plan's: DeepSpeed's stages 3 and 2 with its own settings, hpZ of a node, FSDP2's full",
        "shard and its hybrid shard of a node.",
        "",
        "| scenario | plan | regret | stage 3 | stage 2 | hpZ | full shard | hybrid |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for scenario in kept:
        world_size = math.prod(scenario["levels"])
        node = scenario["scenario"]["cluster"]["ranks_per_node"]
        full = ",".join([str(world_size)] * 3)
        rivals = (
            "deepspeed default stage 3",
            "deepspeed default stage 2",
            f"deepspeed {full} s={node}",
            f"fsdp {full}",
            f"fsdp {node},{node},{node}",
        )
        cells = [_times(speedup(scenario, lambda row, name=name: row["name"] == name)) for name in rivals]  # type: ignore[misc]
        lost = regret(scenario)
        lines.append(f"| {scenario['name']} | {_plan(scenario)} | {_percent(lost)} | {' | '.join(cells)} |")
    known = sorted(each for each in map(regret, kept) if each is not None)
    if known:
        lines += [
            "",
            f"Regret over {len(known)} scenarios: median {statistics.median(known):.1%}, worst {known[-1]:.1%}.",
        ]
    return [*lines, ""]


def _failed(kept: Sequence[dict[str, Any]]) -> list[str]:
    failed = [(scenario["name"], row) for scenario in kept for row in scenario["rows"] if "measured" not in row]
    if not failed:
        return []
    lines = ["## What did not run", ""]
    return [*lines, *(f"- {name}: {row['name']}: {row['failed'].strip().splitlines()[-1]}" for name, row in failed), ""]


def _plan(scenario: dict[str, Any]) -> str:
    plans = [row for row in scenario["rows"] if row["role"] == "plan"]
    points = dict.fromkeys(_degrees(strategy) for strategy in plans[0]["strategies"])
    return f"{plans[0]['engine']} {'; '.join(points)}"


def _degrees(strategy: dict[str, Any]) -> str:
    text = ",".join(str(strategy[f"{name}_degree"]) for name in ("param", "grad", "optim"))
    secondary = strategy["secondary_degree"]
    return text if secondary == strategy["param_degree"] else f"{text} s={secondary}"


def _errors(ordered: Sequence[float]) -> str:
    if not ordered:
        return "– | – | –"
    ninth = ordered[min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)]
    return f"{statistics.median(ordered):.1%} | {ninth:.1%} | {ordered[-1]:.1%}"


def _range(values: Iterable[float]) -> str:
    found = sorted(values)
    return f"{found[0]:+.1%} … {found[-1]:+.1%}" if found else "–"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}x"
