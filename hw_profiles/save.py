"""Writes a profile to a file: deterministic text, and never half a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hw_profiles.errors import ProfileError
from hw_profiles.measure.journal import journals
from hw_profiles.schema import HardwareProfile


def as_json(profile: HardwareProfile) -> str:
    """Returns the profile as JSON text, fields in the schema's order; the same profile gives the same bytes."""
    return profile.model_dump_json(indent=2, exclude_none=True) + "\n"


def save(profile: HardwareProfile, path: str | Path, journal: Path | None = None) -> Path:
    """Writes `profile` to `path`, with its folders, and returns the path. Readers see the old file or the new one.

    Args:
        profile: what to write.
        path: the file.
        journal: what the profile was measured into; removed once the profile is written, with older ones beside it.

    Raises:
        ProfileError: the file cannot be written; a measured profile is then kept in the folder for temporary files.
    """
    target = Path(path)
    try:
        _write(profile, target)
    except OSError as error:
        message = f"cannot write the profile to {target}: {error.strerror}"
        raise ProfileError(message if journal is None else f"{message}{_kept(profile, journal)}") from error
    if journal is not None:
        for each in journals(journal):
            each.unlink(missing_ok=True)
    return target


def check_writable(path: str | Path) -> None:
    """Makes sure that a file can be written at `path`, before much work is done for it.

    Raises:
        ProfileError: it cannot.
    """
    target = Path(path)
    if _takes_text(target):
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        os.close(handle)
        Path(draft).unlink()
    except OSError as error:
        raise ProfileError(
            f"cannot write the profile to {target}: {error.strerror}; give --out a file in a folder that can be written"
        ) from error


def _kept(profile: HardwareProfile, journal: Path) -> str:
    """Keeps a measured profile elsewhere; returns where, and how to go on, for people."""
    goes_on = (
        f". What was measured is kept in {journal}: the same command goes on from there" if journal.is_file() else ""
    )
    try:
        handle, text = tempfile.mkstemp(prefix="shardplan-profile-", suffix=".json")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(as_json(profile))
    except OSError:
        return goes_on
    return f". It is kept in {text}{goes_on}"


def _takes_text(target: Path) -> bool:
    """Tells whether it is a device or a pipe, such as /dev/stdout: a file in its place would be its end."""
    return target.exists() and not target.is_file() and not target.is_dir()


def _write(profile: HardwareProfile, target: Path) -> None:
    if _takes_text(target):
        target.write_text(as_json(profile), encoding="utf-8")
        return
    target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(as_json(profile))
        Path(draft).chmod(0o644)
        Path(draft).replace(target)
    finally:
        Path(draft).unlink(missing_ok=True)
