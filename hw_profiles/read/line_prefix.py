"""What a log puts before each of its lines: timestamps, hosts, the names of pods, the marks of comments and quotes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hw_profiles.read.terminal_text import Line

_LONGEST = 200
"""Characters of a prefix."""


def without_prefix(lines: Sequence[Line], mark: re.Pattern[str]) -> tuple[Line, ...]:
    """Returns `lines` without the text that stands before the first `mark`, wherever lines begin with it.

    Numbers in it may differ from line to line, as those of timestamps and hosts do. Lines without it stay as they are.

    Args:
        lines: of a file.
        mark: what a line begins with that has no prefix.
    """
    first = next((found for line in lines if (found := mark.search(line.text)) is not None), None)
    if first is None:
        return tuple(lines)
    text = first.string[: first.start()].strip()
    if not text or len(text) > _LONGEST:
        return tuple(lines)
    prefix = re.compile(r"\s*" + r"\d+".join(re.escape(part) for part in re.split(r"\d+", text)))
    return tuple(_without(line, prefix) for line in lines)


def _without(line: Line, prefix: re.Pattern[str]) -> Line:
    found = prefix.match(line.text)
    return line if found is None else Line(line.number, line.task, line.text[found.end() :])
