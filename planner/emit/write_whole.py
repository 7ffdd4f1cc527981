"""Writes one text file, all of it or nothing."""

from __future__ import annotations

import secrets
from pathlib import Path

from planner.errors import InputError


def write_whole(path: Path, text: str) -> None:
    """Writes `text`, with one final newline, beside `path` and moves it there; folders above are made.

    A device or a pipe takes the text as it is.

    Raises:
        InputError: It cannot be written; what was at `path` is as it was.
    """
    whole = text.rstrip("\n") + "\n"
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if path.exists() and not path.is_file():
            # A device or a pipe, such as /dev/stdout: a file in its place would be its end.
            path.write_text(whole, encoding="utf-8")
            return
        try:
            unfinished.write_text(whole, encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
