"""Where a command writes: its answer on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType

_MOST_COLUMNS = 120
_STDOUT, _STDERR = 1, 2


@dataclass(frozen=True, slots=True)
class Screen:
    """The two streams of a command. With `as_json`, pages go to standard error, and only the document to the output."""

    as_json: bool

    def page(self, content: RenderableType) -> None:
        """Prints what a person reads."""
        _show(_console(stderr=self.as_json), content)

    def note(self, content: RenderableType) -> None:
        """Prints beside the answer, on standard error; long lines stay whole, so that paths can be copied."""
        _console(stderr=True).print(content, soft_wrap=True)

    def document(self, text: str) -> None:
        """Prints the one JSON document of a command that was asked for it."""
        print(text.rstrip("\n"), flush=True)  # noqa: T201 - the command's output

    @contextmanager
    def others_aside(self) -> Iterator[None]:
        """Inside, what a user's own code prints goes to standard error, by whatever way it is printed."""
        if sys.stdout is None:  # closed by whoever started this
            yield
            return
        sys.stdout.flush()
        kept = os.dup(_STDOUT)
        os.dup2(_STDERR, _STDOUT)
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            os.dup2(kept, _STDOUT)
            os.close(kept)

    def status(self, text: str) -> AbstractContextManager[Any]:
        """Returns a spinner with `text` on standard error; nothing where that is not a terminal."""
        console = _console(stderr=True)
        return console.status(text) if console.is_terminal else nullcontext()

    def progress(self, text: str) -> None:
        """Prints a line of what is being done on standard error; nothing where that is not a terminal."""
        console = _console(stderr=True)
        if console.is_terminal:
            console.print(text)


def json_text(value: Any) -> str:
    """Returns plain values as JSON, indented, keys in their order."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=min(console.width, _MOST_COLUMNS))


def _show(console: Console, content: RenderableType) -> None:
    if console.is_terminal:
        console.print(content)
        return
    # Tables are padded to the full width, which files and diffs should not carry.
    with console.capture() as capture:
        console.print(content)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
    console.file.flush()
