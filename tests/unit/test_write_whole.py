"""A text is written whole, and what is no file stays what it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from planner.emit.write_whole import write_whole


def test_a_pipe_takes_the_text_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole(pipe, "text")
    reader.join(timeout=10)
    assert (received, pipe.is_fifo(), [path.name for path in tmp_path.iterdir()]) == (["text\n"], True, ["pipe"])


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.json"
    for text in ("long text\n\n", "short"):
        write_whole(path, text)
    assert path.read_text() == "short\n"
