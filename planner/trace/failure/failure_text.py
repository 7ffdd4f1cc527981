"""What an error of the model's own code says, and where it was raised, in one line."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path

import torch

import runtime
from planner.trace.fake.shadow import ForeignDeviceError
from planner.trace.record.model_line import shown_path

_MOST_CHARACTERS = 400
"""Of a message; some print whole tensors."""
_FOREIGN = (
    *(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1])),
    f"{Path(runtime.__file__).parent}{os.sep}",
    "<",
)
"""Beginnings of the names of files that are torch's or ours, or no files."""
_STANDARD, _INSTALLED = (f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib"))
_END_OF_SENTENCE = re.compile(r"(?<!e\.g)(?<!i\.e)\.\s+(?=[A-Z])")


def reason_and_place(error: BaseException) -> str:
    """Returns what an error says and where, as `reason (file:line)`."""
    return f"{reason(error)}{place(error)}"


def reason(error: BaseException) -> str:
    """Returns the kind of an error and the first sentence of its message."""
    if isinstance(error, ForeignDeviceError):
        return f"it asks for the device '{error}'"
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()] or [""]
    # A line that ends in a colon announces the reason and does not say it.
    text = " ".join([lines[0], *(lines[1:2] if lines[0].endswith(":") else [])])
    text = _END_OF_SENTENCE.split(text, maxsplit=1)[0].rstrip(".")
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place(error: BaseException) -> str:
    """Returns the innermost line that is neither torch's nor ours, as ` (file:line)`; "" when there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        is_standard = frame.filename.startswith(_STANDARD) and not frame.filename.startswith(_INSTALLED)
        if not is_standard and not frame.filename.startswith(_FOREIGN):
            return f" ({shown_path(frame.filename)}:{frame.lineno})"
    return ""
