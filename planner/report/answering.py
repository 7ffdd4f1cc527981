"""Turns what a command did into an exit code: an error becomes a text, never a traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import typer

from hw_profiles.errors import ProfileError, RanksFailed
from planner.errors import InputError, RunError, ShardplanError
from planner.report.failure import failure_document, failure_text
from planner.report.screen import Screen, json_text

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended. Source: POSIX shells, 128 + SIGINT."""


def answer_to(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    try:
        return _answer(app, list(arguments))
    except BrokenPipeError:
        _silence_output()  # Whoever read the output has closed it: nobody is left to tell.
        return 1
    except OSError as error:
        _silence_output()
        what = error.filename or "standard output"
        Screen(as_json=False).note(failure_text(f"{what} cannot be written: {error.strerror}"))
        return InputError.exit_code


def make_writable(*, is_json: bool) -> None:
    """Makes the output take every character: JSON is UTF-8 whatever the locale, text replaces what a locale has not."""
    for stream, encoding in ((sys.stdout, "utf-8" if is_json else None), (sys.stderr, None)):
        if isinstance(stream, io.TextIOWrapper):  # None where it is closed
            stream.reconfigure(encoding=encoding, errors="replace")


def _silence_output() -> None:
    """Sends what is left to nowhere: Python would try again while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(app: typer.Typer, arguments: list[str]) -> int:
    try:
        returned = app(arguments, prog_name="shardplan", standalone_mode=False)
    except typer.TyperException as error:
        message = error.format_message().replace("Value error, ", "")
        # Without a command the help is the answer, printed already.
        return _fail(arguments, error, error.exit_code, message) if message else error.exit_code
    except ShardplanError as error:
        return _fail(arguments, error, error.exit_code, str(error))
    except ProfileError as error:
        failed = isinstance(error, RanksFailed)
        return _fail(arguments, error, RunError.exit_code if failed else InputError.exit_code, str(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.ENOSPC):
            raise
        return _fail(arguments, error, 1, _bug_text(error))
    return returned if isinstance(returned, int) else 0


def _fail(arguments: list[str], error: Exception, exit_code: int, message: str) -> int:
    screen = Screen(as_json="--json" in arguments)
    screen.note(failure_text(message))
    if screen.as_json:
        screen.document(json_text(failure_document(error, exit_code, message)))
    if os.environ.get("SHARDPLAN_DEBUG") == "1":
        traceback.print_exception(error)
    return exit_code


def _bug_text(error: Exception) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="shardplan-", suffix=".txt", delete=False, encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    return (
        f"this is a bug in shardplan: {type(error).__name__}: {error}\n"
        f"The details are in {file.name}; SHARDPLAN_DEBUG=1 shows them here. Please report them."
    )
