"""Lines of a file that people copied from a terminal or a job's log."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from hw_profiles.errors import ProfileError

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\[\d{1,2}m")
"""Escape codes of terminals (`nvidia-smi` underlines its header), also where the escape character itself was lost."""
_LABEL = re.compile(r"^\s*(?:\[\d+,\s*(\d+)\]\s*<std(?:out|err)>\s*:|(\d+):(?=\s|#|$)) ?")
"""The task's number that `srun -l` and `mpirun --tag-output` put before each line."""

_MOST_BYTES = 256 << 20
"""Of a file: outputs have kilobytes, logs with NCCL_DEBUG=INFO of a thousand ranks some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line without escape codes and label."""

    number: int
    """In the file, from 1."""
    task: int | None
    """Which task printed it, where a launcher says so."""
    text: str


def read_lines(path: Path) -> tuple[Line, ...]:
    """Returns the lines of the file `path`; see `read_text`."""
    return lines_of(read_text(path))


def read_text(path: Path) -> str:
    """Returns the text of the file `path`, whatever bytes are in it. It is read once, from the start: it may be a pipe.

    Raises:
        ProfileError: it cannot be read, nothing is in it, or more than any such output has.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > _MOST_BYTES:
        raise ProfileError(
            f"{path} has more than {_MOST_BYTES >> 20} MiB; give the output of one command, not a whole log",
            value=len(content),
        )
    # Windows shells redirect in UTF-16; a stray byte of another encoding must not cost the rest of a log.
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")
    if not text.strip():
        raise ProfileError(f"{path} is empty; was the command's output redirected into it?")
    return text


def lines_of(text: str) -> tuple[Line, ...]:
    """Returns the lines of `text`, without escape codes, carriage returns and a launcher's labels."""
    lines = []
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        clean = _ESCAPES.sub("", raw).replace("\0", "")
        label = _LABEL.match(clean)
        if label is None:
            lines.append(Line(number, None, clean))
        else:
            lines.append(Line(number, int(label.group(1) or label.group(2)), clean[label.end() :]))
    return tuple(lines)
