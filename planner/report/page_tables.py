"""The tables of a report's page: strategies, time, memory, traffic, alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from planner.plan import Plan, PlannedStrategy
from planner.report.figures import bytes_in, bytes_text, bytes_unit, plural, seconds_in, seconds_unit, share_text
from planner.report.names import degrees_text, exposed_times, operation_text, sharding_text, system_name

Cell = str | tuple[str, str]
"""Text, or text with the class of its cell."""


def table(heads: Sequence[Cell], rows: Iterable[Sequence[Cell]], chosen: int | None = None) -> str:
    """Returns a table; text is escaped here, and a bar is the only cell that is not text."""
    body = "".join(
        f"<tr{_of_class('chosen' if number == chosen else '')}>{''.join(_cell('td', cell) for cell in row)}</tr>"
        for number, row in enumerate(rows)
    )
    head = "".join(_cell("th", cell) for cell in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(tag: str, cell: Cell) -> str:
    text, name = cell if isinstance(cell, tuple) else (cell, "")
    if name == "bar" and tag == "td":
        return f'<td class="bar"><i style="width:{text}%"></i></td>'
    return f"<{tag}{_of_class(name)}>{escape(text)}</{tag}>"


def _of_class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _number(text: str) -> Cell:
    return (text, "n")


def _bar(part: float, whole: float) -> Cell:
    return (f"{100 * part / whole if whole else 0:.2f}", "bar")


def strategies_table(plan: Plan) -> str:
    """Returns one row for each strategy, with the blocks that have it."""
    rows = [
        (
            blocks_text(strategy),
            system_name(strategy, plan.hardware),
            _number(degrees_text([strategy])),
            strategy.recompute,
            (sharding_text(strategy, plan.hardware.world_size) + _beside(strategy), "wide"),
        )
        for strategy in plan.strategies
    ]
    return table(("blocks", "system", ("p/s, g, o", "n"), "recompute", "what is where"), rows)


def _beside(strategy: PlannedStrategy) -> str:
    parts = [
        name
        for name, is_on in (
            ("weights gathered as int8", strategy.quantized_weights),
            ("gradients reduced as int4", strategy.quantized_gradients),
            (f"{strategy.offload} offloaded to the host", strategy.offload != "none"),
            ("collectives level by level", strategy.hierarchical),
        )
        if is_on
    ]
    return "".join(f"; {part}" for part in parts)


def blocks_text(strategy: PlannedStrategy) -> str:
    """Returns the first and the last of a strategy's blocks, and how many they are."""
    names = [name or "model" for name in strategy.blocks]
    if len(names) <= 2:
        return ", ".join(names)
    return f"{names[0]} to {names[-1]} ({plural(len(names), 'block')})"


def time_table(plan: Plan) -> str:
    """Returns what a step's time goes to, by the solver's bound."""
    predicted = plan.predicted
    unit = seconds_unit(predicted.step_s)
    terms = [("compute", predicted.compute_s), *exposed_times(predicted)]
    rows = [
        (name, _number(seconds_in(unit, s)), _number(share_text(s, predicted.step_s)), _bar(s, predicted.step_s))
        for name, s in terms
        if s > 0
    ]
    return table(("what", ("time", "n"), ("share", "n"), ("", "bar")), rows)


def memory_table(plan: Plan) -> str:
    """Returns what a rank's peak consists of."""
    memory = plan.predicted.memory
    unit = bytes_unit(memory.peak_bytes)
    parts = [(name.replace("_", " "), amount) for name, amount in memory.components if amount]
    rows = [
        (name, _number(bytes_in(unit, b)), _number(share_text(b, memory.peak_bytes)), _bar(b, memory.peak_bytes))
        for name, b in [*parts, ("peak", memory.peak_bytes)]
    ]
    return table(("component", ("bytes", "n"), ("share", "n"), ("", "bar")), rows, chosen=len(rows) - 1)


def traffic_table(plan: Plan) -> str:
    """Returns the messages of a rank in a step, by operation and group."""
    rows = plan.predicted.traffic
    bytes_of_all = bytes_unit(max((row.bytes for row in rows), default=0))
    seconds_of_all = seconds_unit(max((max(row.seconds, row.exposed_s) for row in rows), default=0.0))
    heads = ("collective", ("bytes", "n"), ("messages", "n"), ("busy", "n"), ("exposed", "n"), "time is")
    return table(
        heads,
        [
            (
                operation_text(row.operation, row.degree_from, row.degree_to),
                _number(bytes_in(bytes_of_all, row.bytes)),
                _number(f"{row.count:,}"),
                _number(seconds_in(seconds_of_all, row.seconds)),
                _number(seconds_in(seconds_of_all, row.exposed_s)),
                row.known,
            )
            for row in rows
        ],
    )


def alternatives_rows(plan: Plan) -> str:
    """Returns all alternatives with their verdicts, the chosen one first."""
    unit = seconds_unit(plan.predicted.step_s)
    rows = [
        (
            other.name,
            other.engine,
            _number(degrees_text(other.strategies)),
            _number(str(other.micro_batch_size)),
            _number(seconds_in(unit, other.step_s)),
            _number(bytes_text(other.peak_bytes)),
            (other.verdict, "wide"),
        )
        for other in plan.alternatives
    ]
    heads = ("system", "engine", ("p/s, g, o", "n"), ("micro-batch", "n"), ("step", "n"), ("peak", "n"), "verdict")
    return table(heads, rows, chosen=0)
