"""The folder of a training's checkpoints: which are complete, which is the last, which are to go.

    FOLDER/latest            the name of the last complete checkpoint, replaced at once
    FOLDER/step-120/         a complete checkpoint: DCP's files and `checkpoint.json`
    FOLDER/.step-140.partial one that is being written, or whose writer was killed

A checkpoint gets its name when all its files are on the disk, and the pointer turns to it after that. So whatever
happens, what `latest` says is complete.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from runtime.ranks import LaunchError

POINTER = "latest"
DOCUMENT = "checkpoint.json"
VERSION = 1
"""Of the form of a checkpoint."""

_NAME = re.compile(r"step-\d+(\.\d+)?")


def latest(folder: str | Path) -> Path | None:
    """Returns the last complete checkpoint in a folder; None: there is none yet."""
    root = Path(folder)
    try:
        named = root / (root / POINTER).read_text(encoding="utf-8").strip()
    except OSError:
        named = None
    if named is not None and _is_complete(named):
        return named
    # The first checkpoint's writer may have been killed just before it wrote the pointer; or the user moved some.
    found = complete_checkpoints(root)
    return found[-1] if found else None


def complete_checkpoints(root: Path) -> list[Path]:
    """Returns the complete checkpoints, in the order in which they were written."""
    if not root.is_dir():
        return []
    found = [each for each in root.iterdir() if _is_complete(each)]
    return sorted(found, key=lambda each: (int(read_document(each)["number"]), each.name))


def find_checkpoint(folder: str | Path) -> Path:
    """Returns the checkpoint that `folder` is, or the last complete one in it.

    Raises:
        LaunchError: There is none.
    """
    path = Path(folder)
    if (path / DOCUMENT).is_file():
        return path
    found = latest(path)
    if found is None:
        state = "has no complete checkpoint" if path.is_dir() else "does not exist"
        raise LaunchError(f"cannot load a checkpoint: {path} {state}")
    return found


def read_document(checkpoint: Path) -> dict[str, Any]:
    """Returns what `checkpoint.json` says.

    Raises:
        LaunchError: It is missing or damaged, or of a later version of this program.
    """
    path = checkpoint / DOCUMENT
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["version"]
    except OSError as error:
        raise LaunchError(f"cannot read the checkpoint {checkpoint}: {error.strerror} ({path.name})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LaunchError(f"the checkpoint {checkpoint} is damaged: {path.name} is not what was written") from error
    if version != VERSION:
        raise LaunchError(f"the checkpoint {checkpoint} has version {version}, and this program reads {VERSION}")
    assert isinstance(document, dict)
    return document


def partial_folder(root: Path, step: int) -> Path:
    """Returns where the checkpoint of a step is written."""
    return root / f".step-{step}.partial"


def commit(root: Path, partial: Path, document: dict[str, Any], keep: int | None) -> Path:
    """Makes what lies in `partial` a complete checkpoint, and the last one.

    Args:
        root: The folder of checkpoints.
        partial: All files but `checkpoint.json`, on the disk.
        document: What that is to say; its `number` is given here.
        keep: How many checkpoints stay; None: all.
    """
    before = complete_checkpoints(root)
    number = int(read_document(before[-1])["number"]) + 1 if before else 0
    _write(partial / DOCUMENT, json.dumps({**document, "version": VERSION, "number": number}, indent=1))
    _sync(partial)
    name = f"step-{document['step']}"
    twins = [each for each in before if each.name == name or each.name.startswith(f"{name}.")]
    # A step that is written again stands beside the old one until the pointer has turned.
    final = root / (f"{name}.{number}" if (root / name).exists() else name)
    partial.rename(final)
    _sync(root)
    _write(root / f".{POINTER}.partial", final.name)
    (root / f".{POINTER}.partial").replace(root / POINTER)
    _sync(root)
    kept = [each for each in before if each not in twins]
    too_many = kept[: len(kept) + 1 - keep] if keep is not None else []
    for old in [*twins, *too_many]:
        remove(old)
    return final


def remove(checkpoint: Path) -> None:
    """Removes a checkpoint: it loses its name at once, and `clear` takes what a kill leaves of it."""
    hidden = checkpoint.with_name(f".{checkpoint.name}.partial")
    checkpoint.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def clear(root: Path, partial: Path) -> None:
    """Removes what killed writers left, and makes the folder of the next checkpoint."""
    root.mkdir(parents=True, exist_ok=True)
    for each in sorted(root.glob(".step-*.partial")):
        shutil.rmtree(each)
    partial.mkdir()


def _is_complete(checkpoint: Path) -> bool:
    return _NAME.fullmatch(checkpoint.name) is not None and (checkpoint / DOCUMENT).is_file()


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Has the names in a folder outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
