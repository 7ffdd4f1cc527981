"""One row of a waterfall: a bar that begins where the row above ended."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class Bar:
    """The stretch from `begin` to `end` of a scale from 0 to `whole`, as wide as its column; `track` shows the rest."""

    begin: float
    end: float
    whole: float
    style: str = ""
    track: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the bar: block characters, or `#` where the output has only ASCII."""
        width = options.max_width
        cells = width / self.whole if self.whole > 0 else 0.0
        first = min(width, int(self.begin * cells))
        end_eighths, length_eighths = (int(n * cells * 8) for n in (min(self.end, self.whole), self.end - self.begin))
        # A cell is filled from its left: what is shorter than one keeps its length, and what is longer its end.
        eighths = length_eighths if length_eighths < 8 else end_eighths - first * 8
        # Whatever is there at all can be seen: at least an eighth of a cell.
        eighths = max(eighths, 1) if self.end > self.begin else 0
        eighths = min(eighths, (width - first) * 8)
        filled = self._ascii(eighths) if options.ascii_only else "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        rest = width - first - len(filled)
        yield Segment(" " * first)
        yield Segment(filled, Style.parse(self.style))
        yield Segment((("." if options.ascii_only else "·") if self.track else " ") * rest, Style(dim=True))

    def _ascii(self, eighths: int) -> str:
        return "#" * ((eighths + 7) // 8)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Returns: at least ten cells, and whatever there is."""
        return Measurement(min(10, options.max_width), options.max_width)
