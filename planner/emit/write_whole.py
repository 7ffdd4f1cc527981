"""Writes one text file, all of it or nothing."""

from __future__ import annotations

import secrets
from pathlib import Path

from planner.errors import InputError


def write_whole(path: Path, text: str) -> None:
    """Writes `text`, with one final newline, beside `path` and moves it there; folders above are made.

    Raises:
        InputError: It cannot be written; what was at `path` is as it was.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        try:
            unfinished.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
