"""Saves a training, while it waits or beside it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from runtime.checkpoint.coordinate import checkpoint_group, together
from runtime.checkpoint.random_state import random_state
from runtime.checkpoint.ranges import Range, Training
from runtime.checkpoint.training_of import training_of
from runtime.checkpoint.write import Contents, write
from runtime.ranks import LaunchError


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A checkpoint that is being written beside training."""

    step: int
    future: Future[None]

    def wait(self) -> None:
        """Returns when the checkpoint is complete.

        Raises:
            LaunchError: It could not be written; the ones before it stay.
        """
        self.future.result()


_pending: list[PendingSave] = []
"""At most one: two that write at once would talk over each other."""
_writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")


def save(
    training: Any, folder: str | Path, *, step: int, extra: Any = None, keep: int | None = None, rng: bool = False
) -> None:
    """Saves parameters, optimizer states and buffers; returns when the checkpoint is complete and the last one.

    All ranks call it, between two optimizer steps, with the same arguments. `folder` is one that all of them see.

    Args:
        training: A `ShardedOptimizer`, or the engine that `deepspeed.initialize` returned.
        folder: Of the training's checkpoints.
        step: How many optimizer steps are done.
        extra: What else is to come back, such as `scheduler.state_dict()` or the place in the data: any object that
            `torch.save` takes, and the first rank's.
        keep: How many checkpoints stay, this one among them; None: all.
        rng: Save each rank's random state too. It is of use to the same number of ranks alone.

    Raises:
        LaunchError: It is the middle of a step, or a rank could not write, or an earlier `save_async` could not. The
            checkpoints before it stay.
    """
    finish_saves()
    contents = _contents(training, step, extra, keep, rng)
    write(Path(folder), contents, keep, checkpoint_group())


def save_async(
    training: Any, folder: str | Path, *, step: int, extra: Any = None, keep: int | None = None, rng: bool = False
) -> PendingSave:
    """Copies to host memory what this rank is to write, and returns: it is written while training goes on.

    It takes host memory for what the rank writes. A checkpoint that is still being written is waited for first.

    Args:
        training: See `save`.
        folder: See `save`.
        step: See `save`.
        extra: See `save`.
        keep: See `save`.
        rng: See `save`.

    Raises:
        LaunchError: As `save` does; what goes wrong after the copy is raised by the next call, by `finish_saves` and
            by `wait`.
    """
    finish_saves()
    contents = _contents(training, step, extra, keep, rng)
    copied = replace(contents, ranges=_copies(contents.ranges), objects=deepcopy(contents.objects))
    pending = PendingSave(step, _writer.submit(write, Path(folder), copied, keep, checkpoint_group()))
    _pending.append(pending)
    return pending


def finish_saves() -> None:
    """Waits until no checkpoint is being written: before a process ends, for one.

    Raises:
        LaunchError: What was being written could not be.
    """
    while _pending:
        _pending.pop().wait()


def _contents(training: Any, step: int, extra: Any, keep: int | None, rng: bool) -> Contents:
    group = checkpoint_group()
    trained = training_of(training)
    together(group, lambda: _check(trained, step, keep))
    objects: dict[str, Any] = {
        "states": trained.states(),
        "options": trained.options(),
        "loss_scale": trained.loss_scale(),
        "extra": extra,
        "rng": random_state(group) if rng else None,
    }
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    document = {
        "step": step,
        "world_size": world_size,
        "torch": torch.__version__,
        "fingerprint": trained.fingerprint().to_json(),
    }
    return Contents(trained.ranges(), objects, document)


def _check(trained: Training, step: int, keep: int | None) -> None:
    trained.refuse_within_step()
    if step < 0:
        raise LaunchError(f"the step of a checkpoint is {step}, and none is before the first: give the steps done")
    if keep is not None and keep < 1:
        raise LaunchError(f"keep={keep} would keep no checkpoint: give 1 or more, or None for all")


def _copies(ranges: Sequence[Range]) -> list[Range]:
    """Returns what this rank writes, in host memory."""
    copied = []
    for each in ranges:
        if each.is_written:
            host = torch.empty(each.values.shape, dtype=each.values.dtype, pin_memory=each.values.is_cuda)
            copied.append(replace(each, values=host.copy_(each.values, non_blocking=True)))
    if any(each.values.is_cuda for each in ranges):
        torch.cuda.current_stream().synchronize()
    return copied
