"""Which line of the model's own code runs now, for warnings that a person can act on."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import FrameType

import torch

_FOREIGN = (*(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, __file__)), contextlib.__file__, "<")
"""Beginnings of the names of files that are torch's or ours, or no files."""


def model_line() -> str | None:
    """Returns "file:line" of the innermost frame that is neither torch's nor the trace's; None when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_FOREIGN):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None
