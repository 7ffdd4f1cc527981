"""Keeps what was measured on disk, a line for each piece, so that a measurement that is cut off can be gone on with."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hw_profiles.errors import ProfileError

_VERSION = 1


class Journal:
    """An open journal: the pieces that it has, and a place for more."""

    def __init__(self, path: Path, fingerprint: Mapping[str, Any], pieces: Mapping[str, Any], notes: Sequence[str]):
        self.path = path
        self.pieces: dict[str, Any] = dict(pieces)
        self.notes: list[str] = list(notes)
        """What a person should know of it."""
        # Beside it first: being cut off here must not lose the pieces that are taken over.
        draft = path.with_name(f"{path.name}.draft")
        self._file = draft.open("w", encoding="utf-8")
        self._write({"version": _VERSION, "fingerprint": dict(fingerprint)})
        for name, value in self.pieces.items():
            self._write({"piece": name, "value": value})
        draft.replace(path)

    def add(self, name: str, value: Any) -> str:
        """Keeps one more piece, on the disk when this returns; returns what went wrong, "" if nothing."""
        self.pieces[name] = value
        try:
            self._write({"piece": name, "value": value})
        except OSError as error:
            # What is measured is still in memory: a full disk must not end the measurement.
            return f"{self.path} cannot be written ({error.strerror}): if it is cut off, what is measured is lost"
        return ""

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def open_journal(path: Path, fingerprint: Mapping[str, Any], *, fresh: bool = False) -> Journal:
    """Returns the journal at `path`, with the pieces of an earlier one of the same fingerprint.

    A journal of another measurement is moved aside and not used. With `fresh`, so is one of the same.

    Args:
        path: of the file.
        fingerprint: what must be the same for a piece to be taken over: ranks, hosts, devices, effort, transport.
        fresh: starts anew.

    Raises:
        ProfileError: the file cannot be written.
    """
    notes: list[str] = []
    pieces: dict[str, Any] = {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The current one first: it is the latest.
        for old in journals(path):
            found = _read(old)
            if found is not None and found[0] == dict(fingerprint) and not fresh and not pieces:
                pieces = found[1]
                notes.append(f"going on with {old}: {len(pieces)} pieces are measured already")
                if old != path:
                    _move_aside(path)
                break
            notes.append(_unused(old, found, fingerprint))
        else:
            _move_aside(path)
        return Journal(path, fingerprint, pieces, notes)
    except OSError as error:
        raise ProfileError(
            f"cannot write {path}, which keeps what is measured until the profile is written: {error.strerror}; give "
            "--out a path in a folder that can be written"
        ) from error


def journals(path: Path) -> list[Path]:
    """Returns the journal at `path` and those moved aside for it, in that order."""
    aside = sorted(path.parent.glob(f"{glob.escape(path.name)}.other*")) if path.parent.is_dir() else []
    return [each for each in (path, *aside) if each.is_file()]


def _unused(old: Path, found: tuple[dict[str, Any], dict[str, Any]] | None, fingerprint: Mapping[str, Any]) -> str:
    if found is None:
        return f"{old} is no journal that can be read: not used"
    differs = [key for key, value in fingerprint.items() if found[0].get(key) != value]
    if not differs:
        return f"{old} is not used, as asked for; it is kept until the profile is written"
    shown = ", ".join(f"{key} {found[0].get(key)} there, {fingerprint[key]} now" for key in differs)
    return f"{old} is of another measurement and not used ({shown}); it is kept until the profile is written"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Returns the fingerprint and the pieces; None of a file that is no journal.

    Lines from the first broken one on do not count: the measurement, or the disk, was cut off there.
    """
    head, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    pieces = {}
    try:
        first = json.loads(head)
        if first["version"] != _VERSION:
            return None
        fingerprint = dict(first["fingerprint"])
    except (ValueError, KeyError, TypeError):
        return None
    try:
        for line in lines[:-1]:
            entry = json.loads(line)
            pieces[entry["piece"]] = entry["value"]
    except (ValueError, KeyError, TypeError):
        pass
    return fingerprint, pieces


def _move_aside(path: Path) -> None:
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.name}.other{number}")).exists():
        number += 1
    path.replace(aside)
