"""Writes a profile to a file: deterministic text, and never half a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hw_profiles.errors import ProfileError
from hw_profiles.schema import HardwareProfile


def as_json(profile: HardwareProfile) -> str:
    """Returns the profile as JSON text, fields in the schema's order; the same profile gives the same bytes."""
    return profile.model_dump_json(indent=2, exclude_none=True) + "\n"


def save(profile: HardwareProfile, path: str | Path) -> Path:
    """Writes `profile` to `path`, with its folders, and returns the path. Readers see the old file or the new one.

    Raises:
        ProfileError: the file cannot be written.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(as_json(profile))
            Path(draft).chmod(0o644)
            Path(draft).replace(target)
        finally:
            Path(draft).unlink(missing_ok=True)
    except OSError as error:
        raise ProfileError(f"cannot write the profile to {target}: {error.strerror}") from error
    return target
