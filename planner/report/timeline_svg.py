"""A step's timeline as drawings for a page: one for each part, a row for compute and one for each kind of group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

from costmodels.compute import NS_PER_S
from planner.report.figures import bytes_text, seconds_text
from planner.report.lanes import Lane, kind_of, lane_names, lanes
from planner.simulate.timeline import Event, Timeline, TimelinePart

WIDTH, ROW, GAP = 1200, 26, 6
"""Units of a drawing: it is stretched to the page's width, so that only ratios of widths count."""
_SEEN = 0.6
"""Units below which neighbours of one kind are drawn as one."""


def timeline_figures(timeline: Timeline, block_names: Sequence[str]) -> str:
    """Returns an HTML figure for each part of the step, each as wide as the page.

    Args:
        timeline: The step, played through.
        block_names: Of the model's blocks, in their order.
    """
    names = lane_names(timeline)
    figures, before = [], 0
    for part in timeline.parts:
        figures.append(_figure(part, names, block_names, _caption(part, before)))
        before += part.repeats
    return "".join(figures)


def _caption(part: TimelinePart, before: int) -> str:
    long = seconds_text(part.duration_ns / NS_PER_S)
    if part.name == "update":
        return f"After the last micro-batch: {long}"
    if part.repeats == 1:
        return f"Micro-batch {before + 1}: {long}"
    return f"Micro-batches {before + 1} to {before + part.repeats}, all alike: {long} each"


def _figure(part: TimelinePart, names: tuple[str, ...], block_names: Sequence[str], caption: str) -> str:
    rows = lanes(part, names)
    labels = "".join(f"<span>{escape(row.name)}</span>" for row in rows)
    height = len(rows) * (ROW + GAP)
    drawn = "".join(_row(row, part.duration_ns, number * (ROW + GAP), block_names) for number, row in enumerate(rows))
    ticks = "".join(
        f"<span>{escape(seconds_text(part.duration_ns * quarter / 4 / NS_PER_S))}</span>" for quarter in range(5)
    )
    return (
        f'<figure class="part"><figcaption>{escape(caption)}</figcaption><div class="strip">'
        f'<div class="lanes" style="grid-auto-rows:{ROW + GAP}px">{labels}</div>'
        f'<svg viewBox="0 0 {WIDTH} {height}" height="{height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(caption)}">{drawn}</svg><div></div><div class="ticks">{ticks}</div></div></figure>'
    )


@dataclass(frozen=True, slots=True)
class _Bar:
    """A rectangle: one event, or several neighbours too small to be told apart."""

    kind: str
    begin: float
    end: float
    events: int
    first: Event
    is_odd: bool


def _row(row: Lane, duration_ns: int, top: int, block_names: Sequence[str]) -> str:
    track = f'<rect class="track" x="0" y="{top}" width="{WIDTH}" height="{ROW}"/>'
    bars = _joined(_bars(row.events, WIDTH / max(duration_ns, 1)))
    return track + "".join(_rect(bar, top, block_names) for bar in bars)


def _bars(events: Iterable[Event], scale: float) -> Iterator[_Bar]:
    for event in events:
        is_odd = bool(event.blocks and event.blocks[0] % 2)
        yield _Bar(kind_of(event), event.start_ns * scale, event.end_ns * scale, 1, event, is_odd)


def _joined(bars: Iterable[_Bar]) -> Iterator[_Bar]:
    """Yields the bars; neighbours of one kind and block, or too small to be seen, as one."""
    last: _Bar | None = None
    for bar in bars:
        if last is not None and bar.kind == last.kind and bar.begin - last.end < _SEEN:
            is_same = bar.first.blocks == last.first.blocks
            if is_same or bar.end - bar.begin < _SEEN or last.end - last.begin < _SEEN:
                last = replace(last, end=bar.end, events=last.events + bar.events)
                continue
        if last is not None:
            yield last
        last = bar
    if last is not None:
        yield last


def _rect(bar: _Bar, top: int, block_names: Sequence[str]) -> str:
    width = max(bar.end - bar.begin, 0.4)
    odd = " odd" if bar.is_odd else ""
    return (
        f'<rect class="{bar.kind}{odd}" x="{bar.begin:.2f}" y="{top}" width="{width:.2f}" height="{ROW}">'
        f"<title>{escape(_title(bar, block_names))}</title></rect>"
    )


def _title(bar: _Bar, block_names: Sequence[str]) -> str:
    event = bar.first
    blocks = ", ".join(block_names[number] or "model" for number in event.blocks[:3])
    more = f" and {len(event.blocks) - 3} more" if len(event.blocks) > 3 else ""
    size = "" if event.message is None else f", {bytes_text(event.message.message_bytes)}"
    of = f" of {blocks}{more}" if blocks else ""
    again = f" (the first of {bar.events})" if bar.events > 1 else ""
    return f"{bar.kind.replace('_', '-')}{of}{size}, {seconds_text(event.duration_ns / NS_PER_S)}{again}"
