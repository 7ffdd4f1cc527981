"""What `accuracy_and_regret.py` measured, as figures: errors of predictions, regret of choices, speedups."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scipy.stats import spearmanr

TRAFFIC = ("operation", "degree_from", "degree_to", "bytes", "count")
Row = dict[str, Any]
"""One way to train: what was predicted, and what was measured or why it failed."""
Kept = dict[str, Any]
"""One scenario."""

COMMUNICATION = 0.3
"""Part of the step from which on times are judged."""


def ran(scenario: Kept) -> list[Row]:
    """Returns the ways to train that were measured."""
    return [row for row in scenario["rows"] if "measured" in row]


def predicted(scenario: Kept) -> list[Row]:
    """Returns those of them whose predictions are judged: the space and DeepSpeed's defaults.

    Of `fully_shard` by itself nothing is said; a plan is one of the space, or joins several for classes of blocks.
    """
    return [row for row in ran(scenario) if row["role"] in ("point", "default")]


def predicted_s(row: Row) -> float:
    """Returns the prediction of a step's seconds: the step played through, where it was."""
    told = row["predicted"]
    return float(told["simulated_step_s"] or told["step_s"])


def measured_s(row: Row) -> float:
    """Returns the median of the steps that were timed."""
    return float(row["measured"]["step_s"])


def step_error(row: Row) -> float:
    """Predicted over measured seconds of a step, less one."""
    return predicted_s(row) / measured_s(row) - 1


def memory_error(row: Row, figure: str) -> float:
    """Predicted over measured bytes, less one."""
    return float(row["predicted"]["memory"][figure] / row["measured"]["memory"][figure] - 1)


def has_exact_bytes(row: Row) -> bool:
    """Whether every operation over every kind of group has the bytes and the number of messages that were predicted."""
    said, seen = (
        sorted(tuple(each[key] for key in TRAFFIC) for each in row[of]["traffic"]) for of in ("predicted", "measured")
    )
    return said == seen


def communicates(row: Row) -> bool:
    """Whether communication is at least `COMMUNICATION` of the step, as what is not compute of what was measured."""
    return bool(1 - row["predicted"]["compute_s"] / measured_s(row) >= COMMUNICATION)


def rank_correlation(rows: Sequence[Row]) -> float:
    """Returns Spearman's rank correlation of predicted and measured seconds."""
    return float(spearmanr([predicted_s(row) for row in rows], [measured_s(row) for row in rows]).statistic)


def plan_of(scenario: Kept) -> Row | None:
    """Returns the plan that was chosen, where it was measured."""
    return next((row for row in ran(scenario) if row["role"] == "plan"), None)


def fastest(scenario: Kept) -> Row:
    """Returns the way to train that took the least time."""
    return min(ran(scenario), key=measured_s)


def regret(scenario: Kept) -> float | None:
    """Returns the plan's measured seconds over those of the fastest way to train, less one; None: the plan failed."""
    chosen = plan_of(scenario)
    return None if chosen is None else measured_s(chosen) / measured_s(fastest(scenario)) - 1


def speedup(scenario: Kept, name: str) -> float | None:
    """Returns the seconds of a way to train over the plan's; None: one of them did not run."""
    chosen = plan_of(scenario)
    rival = next((row for row in ran(scenario) if row["name"] == name), None)
    return None if chosen is None or rival is None else measured_s(rival) / measured_s(chosen)


def rivals(scenario: Kept) -> dict[str, str]:
    """Returns what people take today, with the names of the ways to train: 3 and 2 with DeepSpeed's own settings."""
    world_size, node = math.prod(scenario["levels"]), scenario["scenario"]["cluster"]["ranks_per_node"]
    return {
        "ZeRO-3": "deepspeed default stage 3",
        "ZeRO-2": "deepspeed default stage 2",
        "hpZ": f"deepspeed {','.join([str(world_size)] * 3)} s={node}",
        "FSDP2": f"fully_shard {world_size}",
        "HSDP": f"fully_shard {node}",
    }


def is_slow(scenario: Kept) -> bool:
    """Whether the slowest links have a tenth of the speed inside nodes, or less."""
    cluster = scenario["scenario"]["cluster"]
    slowest = min(each for each in (cluster["between_mbit"], cluster["racks_mbit"]) if each)
    return bool(slowest * 10 <= cluster["inside_mbit"])


def degrees(row: Row) -> str:
    """Returns (p, g, o), with s where it is not p, of each of a row's strategies once."""
    found = dict.fromkeys(_degrees(each) for each in row["strategies"])
    return "; ".join(found)


def _degrees(strategy: dict[str, Any]) -> str:
    text = ",".join(str(strategy[f"{name}_degree"]) for name in ("param", "grad", "optim"))
    secondary = strategy["secondary_degree"]
    return text if secondary == strategy["param_degree"] else f"{text} s={secondary}"


def quantiles(values: Iterable[float]) -> tuple[float, float, float] | None:
    """Returns median, 90th percentile and greatest; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return statistics.median(ordered), ordered[math.ceil(0.9 * len(ordered)) - 1], ordered[-1]


def by(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Returns the rows of each key, sorted by it."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return dict(sorted(found.items()))
