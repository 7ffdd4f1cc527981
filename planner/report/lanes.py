"""The rows of a timeline: compute, and one for each kind of group that messages run between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.simulate.timeline import Event, Timeline, TimelinePart

COMPUTE = "compute"

LETTERS: Mapping[str, str] = {
    "forward": "F",
    "recompute": "R",
    "backward": "B",
    "update": "U",
    "all_gather": "G",
    "reduce_scatter": "S",
    "all_reduce": "A",
    "reduce": "D",
    "broadcast": "C",
    "all_to_all": "T",
}
"""What computes and what sends, by a letter each."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One row: its name, and the events of one part of the step in it."""

    name: str
    events: tuple[Event, ...]


def lanes(part: TimelinePart, names: tuple[str, ...]) -> tuple[Lane, ...]:
    """Returns the rows of a part, one for each name that it has events for; compute always."""
    found: dict[str, list[Event]] = {name: [] for name in names}
    for event in part.events:
        found[lane_name(event)].append(event)
    return tuple(Lane(name, tuple(events)) for name, events in found.items() if events or name == COMPUTE)


def lane_names(timeline: Timeline) -> tuple[str, ...]:
    """Returns the names of all rows of a step: compute, then groups by their degrees."""
    groups = {
        (event.message.degree_from, event.message.degree_to): lane_name(event)
        for part in timeline.parts
        for event in part.events
        if event.message is not None
    }
    return (COMPUTE, *(groups[key] for key in sorted(groups)))


def lane_name(event: Event) -> str:
    """Returns the row of an event: `compute`, `over 8`, `between 8 and 64`."""
    message = event.message
    if message is None:
        return COMPUTE
    if message.degree_from == 1:
        return f"over {message.degree_to}"
    return f"between {message.degree_from} and {message.degree_to}"


def kind_of(event: Event) -> str:
    """Returns what an event does: a key of `LETTERS`."""
    return event.what if event.message is None else event.message.operation


def short_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the blocks' names without what all of a list share: the last part of each path."""
    return tuple(name.rpartition(".")[2] or "model" for name in names)
