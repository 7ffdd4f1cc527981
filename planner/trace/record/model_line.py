"""Which line of the model's own code runs now, for warnings that a person can act on."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType

import torch

_TRACE = Path(__file__).parents[1]
_FOREIGN = (*(f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, _TRACE)), contextlib.__file__, "<")
"""Beginnings of the names of files that are torch's or ours, or no files."""
_INSTALLED = f"{sysconfig.get_path('purelib')}{os.sep}"
_CALLERS = tuple(
    str(_TRACE / folder / f"{name}.py")
    for folder, name in (("record", "record_step"), ("ways", "joint_graph"), ("fake", "fake_model"))
)
"""Where the trace calls the model: what is further out called the trace."""


def model_line() -> str | None:
    """Returns "file:line" of the innermost frame of the model; None where torch alone runs, as in backward."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file in _CALLERS:
            return None
        if not is_foreign(file):
            return f"{shown_path(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def is_foreign(file: str) -> bool:
    """Whether a frame's file is torch's or ours, or no file."""
    return file.startswith(_FOREIGN)


def shown_path(file: str) -> str:
    """Returns the path of a file for people: of an installed package from the package on, else as it is."""
    return file.removeprefix(_INSTALLED)
