"""What one message of each kind takes, with the formula of its algorithm or the curve that it is read off."""

from __future__ import annotations

import itertools

from costmodels.algorithms import ARGUMENTS, FORMULAS, SOURCES
from costmodels.collectives import ModelledTime, collective_time, modelled_time
from costmodels.engine import OPERATIONS, Operation
from costmodels.lower import fill_in
from costmodels.network import Network
from planner.explain.explanation import Line
from planner.plan import Plan
from planner.report.names import operation_text


def messages(plan: Plan, network: Network) -> tuple[Line, ...]:
    """Returns the seconds of one message of the mean size, for each kind of message.

    Args:
        plan: What is explained.
        network: The links of its machine.
    """
    return tuple(
        _message_line(operation, row.degree_from, row.degree_to, row.bytes // row.count, network)
        for row in plan.predicted.traffic
        for operation in OPERATIONS
        if operation == row.operation and row.count
    )


def _message_line(operation: Operation, degree_from: int, degree_to: int, message_bytes: int, network: Network) -> Line:
    """Seconds of one message of the mean size: from the measured curve, or by the levels that are the slowest."""
    time = collective_time(operation, degree_from, degree_to, message_bytes, network)
    modelled = modelled_time(operation, degree_from, degree_to, message_bytes, network)
    formula, substituted = f"{time.provenance} at {message_bytes:,} bytes", ""
    if time.provenance == "modelled" and modelled.phases:
        formula, substituted = _modelled_texts(modelled, operation, message_bytes)
        if time.likened_to:
            substituted += f", held to what was measured between {time.likened_to[0]} and {time.likened_to[1]}"
    return Line(
        name=operation_text(operation, degree_from, degree_to),
        formula=formula,
        substituted=substituted,
        value=time.seconds,
        unit="s",
        source=SOURCES[modelled.algorithm],
    )


def _modelled_texts(modelled: ModelledTime, operation: Operation, message_bytes: int) -> tuple[str, str]:
    """Returns the sum of an algorithm's phases and start-ups, with letters and with numbers."""
    letters, numbers = [], []
    # An algorithm that takes the levels in turn has one formula for all of them.
    for formula, phase in zip(itertools.cycle(FORMULAS[modelled.algorithm, operation]), modelled.phases, strict=False):
        at = phase.slowest.geometry
        values = (message_bytes, at.units, at.groups, at.group_ranks, at.group_size, at.stages)
        filled = fill_in(formula, dict(zip(ARGUMENTS, values, strict=True)))
        letters.append(f"({filled.formula}) / bandwidth of level {at.level + 1}")
        numbers.append(f"({filled.substituted}) / {phase.slowest.entering_bytes / phase.bandwidth_s:.4g}")
    startups_s = modelled.startups_s - modelled.hidden_s
    return " + ".join([*letters, "start-ups"]), " + ".join([*numbers, f"{startups_s:.4g} s"])
