"""The checkpoints of a run that `launch.py` makes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from runtime.checkpoint.folder import find_checkpoint, latest, read_document
from runtime.checkpoint.load import load
from runtime.checkpoint.save import finish_saves, save_async


class RunCheckpoints:
    """Saves every so many steps, beside the next ones, and after the last."""

    def __init__(self, engine: Any, folder: Path, every: int | None) -> None:
        """Takes an engine before its first step.

        Args:
            engine: Of either kind.
            folder: Where checkpoints go.
            every: Steps between two; None: only the last step is saved.
        """
        self._engine = engine
        self._folder = folder
        self._every = every
        self._saved: int | None = None

    def resume(self) -> int:
        """Loads the last checkpoint, if there is one, and returns the steps that are done.

        Raises:
            LaunchError: It is of another model or optimizer, or damaged.
        """
        if latest(self._folder) is None:
            _tell(f"{self._folder} has no checkpoint yet: this run starts anew")
            return 0
        path = find_checkpoint(self._folder)
        same_ranks = read_document(path)["world_size"] == dist.get_world_size()
        loaded = load(self._engine, path, rng=same_ranks)
        _tell(f"goes on from {path}, after step {loaded.step}")
        if not same_ranks:
            _tell("on another number of ranks, so random states (of dropout, for one) start anew")
        self._saved = loaded.step
        return loaded.step

    def after_step(self, step: int) -> None:
        """Saves, where it is time.

        Args:
            step: Steps that are done.

        Raises:
            LaunchError: The checkpoint before this one could not be written.
        """
        if self._every is not None and step % self._every == 0:
            self._save(step)

    def finish(self, step: int) -> None:
        """Saves the last step, and returns when it is complete.

        Raises:
            LaunchError: It could not be written.
        """
        if self._saved != step:
            self._save(step)
        finish_saves()

    def _save(self, step: int) -> None:
        save_async(self._engine, self._folder, step=step, rng=True)
        self._saved = step


def _tell(text: str) -> None:
    if dist.get_rank() == 0:
        print(f"launch.py: {text}", file=sys.stderr)  # noqa: T201 - its only channel
