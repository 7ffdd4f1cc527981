"""Which line of the model's own code runs now, for warnings that a person can act on."""

from __future__ import annotations

import sys
from types import FrameType

_FOREIGN = ("/torch/", "/planner/trace/", "/contextlib.py")
"""Parts of file names that are torch's or ours."""


def model_line() -> str | None:
    """Returns "file:line" of the innermost frame that is neither torch's nor the trace's; None when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and not any(part in file for part in _FOREIGN):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None
