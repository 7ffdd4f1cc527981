"""A step's timeline for a terminal: what computes and what is sent, column by column, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.text import Text

from costmodels.communication import CAUSES
from costmodels.compute import NS_PER_S
from planner.plan import Plan
from planner.report.figures import plural, seconds_in, seconds_text, seconds_unit, share_text
from planner.report.lanes import COMPUTE, LETTERS, Lane, kind_of, lane_names, lanes, short_names
from planner.report.names import CAUSE_NAMES
from planner.simulate.timeline import Timeline, TimelinePart

IDLE = "·"
_STYLES: Mapping[str, str] = {
    "F": "green",
    "R": "yellow",
    "B": "blue",
    "U": "white",
    "G": "cyan",
    "S": "magenta",
    "A": "red",
    "D": "red",
    "C": "cyan",
    "T": "magenta",
}


def timeline_page(timeline: Timeline, plan: Plan, block_names: Sequence[str]) -> RenderableType:
    """Returns the parts of a step with a row for compute and one for each kind of group, then what they leave exposed.

    Args:
        timeline: The plan's step, played through.
        plan: Whose step it is.
        block_names: Of the model's blocks, in their order.
    """
    names = lane_names(timeline)
    rows: list[RenderableType] = [Text("Timeline of an optimizer step, played through", style="bold")]
    for number, part in enumerate(timeline.parts):
        rows += [Text(_title(timeline, number)), _Strip(part, names, short_names(tuple(block_names)))]
    return Group(*rows, _legend(timeline), _exposed(timeline), Text(_beside_bound(timeline, plan)))


def _title(timeline: Timeline, number: int) -> str:
    part = timeline.parts[number]
    long = seconds_text(part.duration_ns / NS_PER_S)
    if part.name == "update":
        return f"\nafter the last micro-batch: {long}"
    first = 1 + sum(other.repeats for other in timeline.parts[:number])
    if part.repeats == 1:
        return f"\nmicro-batch {first}: {long}"
    return f"\nmicro-batches {first} to {first + part.repeats - 1}, all alike: {long} each"


def _legend(timeline: Timeline) -> Text:
    kinds = dict.fromkeys(kind_of(event) for part in timeline.parts for event in part.events)
    listed = ", ".join(f"{LETTERS[kind]} {kind.replace('_', '-')}" for kind in LETTERS if kind in kinds)
    return Text(f"\n{listed}, {IDLE} nothing; small: less than half of the column", style="dim")


def _exposed(timeline: Timeline) -> Text:
    unit = seconds_unit(timeline.step_s)
    terms = [("compute", timeline.compute_ns)]
    terms += [(CAUSE_NAMES[f"{cause}_s"], getattr(timeline.exposed, f"{cause}_ns")) for cause in CAUSES]
    listed = [
        f"{name} {seconds_in(unit, ns / NS_PER_S)} ({share_text(ns, timeline.step_ns)})" for name, ns in terms if ns
    ]
    return Text(" + ".join(listed) + f" = {seconds_in(unit, timeline.step_s)}")


def _beside_bound(timeline: Timeline, plan: Plan) -> str:
    bound_s = plan.predicted.step_s
    more = timeline.step_s / bound_s - 1
    text = f"The solver's bound of this step is {seconds_text(bound_s)}; played through it takes {more:+.1%}."
    num_messages = sum(part.repeats for part in timeline.parts for event in part.events if event.message is not None)
    return f"{text} {plural(num_messages, 'message')} in all."


@dataclass(frozen=True, slots=True)
class _Strip:
    """One part of a step, as wide as the terminal."""

    part: TimelinePart
    names: tuple[str, ...]
    blocks: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        margin = max(len(name) for name in self.names) + 2
        width = max(10, options.max_width - margin)
        for lane in lanes(self.part, self.names):
            if lane.name == COMPUTE:
                ruler = _ruler(lane, self.part.duration_ns, width, self.blocks)
                if ruler:
                    yield Text(" " * margin + ruler, style="dim", no_wrap=True)
            yield _row(lane, self.part.duration_ns, width, margin, "." if options.ascii_only else IDLE)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(40, options.max_width), options.max_width)


def _row(lane: Lane, duration_ns: int, width: int, margin: int, idle: str) -> Text:
    row = Text(f"{lane.name:<{margin}}", no_wrap=True)
    for letter in _cells(lane, duration_ns, width):
        row.append(letter or idle, style=_STYLES.get(letter.upper(), "dim"))
    return row


def _cells(lane: Lane, duration_ns: int, width: int) -> list[str]:
    """Returns for each column the letter of what takes most of it, small where it takes less than half."""
    shares: list[dict[str, float]] = [{} for _ in range(width)]
    column_ns = max(duration_ns, 1) / width
    for event in lane.events:
        letter = LETTERS[kind_of(event)]
        first = int(event.start_ns / column_ns)
        for column in range(first, min(width, int(event.end_ns / column_ns) + 1)):
            begin_ns, end_ns = column * column_ns, (column + 1) * column_ns
            part_ns = min(end_ns, event.end_ns) - max(begin_ns, event.start_ns)
            shares[column][letter] = shares[column].get(letter, 0.0) + max(0.0, part_ns)
    return [_most(share, column_ns) for share in shares]


def _most(share: Mapping[str, float], column_ns: float) -> str:
    busy_ns = sum(share.values())
    if not busy_ns:
        return ""
    letter = max(share, key=lambda each: share[each])
    return letter if busy_ns >= column_ns / 2 else letter.lower()


def _ruler(lane: Lane, duration_ns: int, width: int, blocks: Sequence[str]) -> str:
    """Returns the blocks' names above the columns where they begin to compute, as many as there is room for."""
    line = ""
    for name, start_ns in _begins(lane, blocks):
        column = int(start_ns / max(duration_ns, 1) * width)
        if column + len(name) <= width and (column > len(line) or not line):
            line += " " * (column - len(line)) + name
    return line


def _begins(lane: Lane, blocks: Sequence[str]) -> Iterator[tuple[str, int]]:
    last: tuple[int, ...] | None = None
    for event in lane.events:
        if event.blocks and event.blocks != last:
            yield blocks[event.blocks[0]], event.start_ns
        last = event.blocks
