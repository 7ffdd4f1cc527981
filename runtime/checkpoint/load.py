"""Loads a checkpoint into a training, whatever its plan, number of ranks and precision."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load

from runtime.checkpoint.coordinate import checkpoint_group, reasons, together
from runtime.checkpoint.dcp_planners import LoadRanges
from runtime.checkpoint.fingerprint import Fingerprint, read_fingerprint
from runtime.checkpoint.folder import find_checkpoint, read_document
from runtime.checkpoint.random_state import set_random_state
from runtime.checkpoint.ranges import Range, Training
from runtime.checkpoint.save import finish_saves
from runtime.checkpoint.training_of import training_of
from runtime.checkpoint.write import OBJECTS
from runtime.ranks import LaunchError

_SHOWN = 4
"""Differences that a message names."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came back beside the training itself."""

    path: Path
    step: int
    """Optimizer steps done when it was saved."""
    extra: Any
    """What `save` was given."""


def load(training: Any, folder: str | Path, *, rng: bool = False) -> Loaded:
    """Loads the last complete checkpoint; training goes on as it would have.

    All ranks call it, between two optimizer steps. Parameters, optimizer states, buffers, the options of the
    optimizer's groups and the loss scale are replaced; an object in `extra` is the caller's to use. Objects in a
    checkpoint are read as pickles: load only those that you trust.

    Args:
        training: A `ShardedOptimizer`, or the engine that `deepspeed.initialize` returned, around the same model.
        folder: Of the training's checkpoints, or one of these.
        rng: Set each rank's random state too.

    Raises:
        LaunchError: There is no complete checkpoint, it is damaged, or it is of another model or optimizer: the message
            says in what they differ. Where a file turns out damaged, the training is left half loaded.
    """
    finish_saves()
    group = checkpoint_group()
    trained = training_of(training)
    path, document = together(group, lambda: _open(trained, folder))
    objects = read(path, [], group)
    together(group, lambda: trained.make_states(objects["states"], objects["options"]))
    read(path, trained.ranges(), group)
    if objects["loss_scale"] is not None:
        trained.set_loss_scale(objects["loss_scale"])
    trained.settle()
    if rng:
        together(group, lambda: set_random_state(objects["rng"]))
    return Loaded(path, int(document["step"]), objects["extra"])


def read(path: Path, ranges: list[Range], group: Any) -> dict[str, Any]:
    """Fills ranges in place, and returns the objects of a checkpoint.

    Args:
        path: A complete checkpoint.
        ranges: What this rank needs.
        group: Of the ranks that call it; None: this process alone.

    Raises:
        LaunchError: A file is missing or damaged.
    """
    objects: dict[str, Any] = {OBJECTS: None}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            dcp_load(
                objects,
                storage_reader=FileSystemReader(path),
                planner=LoadRanges(ranges),
                process_group=group,
                no_dist=group is None,
            )
    except CheckpointException as error:
        raise LaunchError(f"cannot read the checkpoint {path}: {reasons(error)}") from error
    found = objects[OBJECTS]
    assert isinstance(found, dict)
    return found


def check_files(path: Path) -> None:
    """Refuses a checkpoint some of whose files are gone.

    Raises:
        LaunchError: Which is.
    """
    try:
        metadata = FileSystemReader(path).read_metadata()
    except FileNotFoundError as error:
        raise LaunchError(f"the checkpoint {path} is damaged: it has no .metadata") from error
    except Exception as error:  # unpickling something else raises almost anything
        raise LaunchError(f"the checkpoint {path} is damaged: its .metadata is not what was written") from error
    lengths: dict[str, int] = {}
    for each in metadata.storage_data.values():
        lengths[each.relative_path] = max(lengths.get(each.relative_path, 0), each.offset + each.length)
    for name, length in lengths.items():
        file = path / name
        size = file.stat().st_size if file.is_file() else 0
        if size < length:
            raise LaunchError(f"the checkpoint {path} is damaged: {name} has {size} bytes of {length}")


def _open(trained: Training, folder: str | Path) -> tuple[Path, dict[str, Any]]:
    trained.refuse_within_step()
    path = find_checkpoint(folder)
    document = read_document(path)
    refuse_other_training(path, read_fingerprint(document["fingerprint"]), trained.fingerprint())
    if not dist.is_initialized() or dist.get_rank() == 0:
        check_files(path)
    return path, document


def refuse_other_training(path: Path, saved: Fingerprint, own: Fingerprint) -> None:
    """Refuses a checkpoint of another model or optimizer.

    Raises:
        LaunchError: In what they differ.
    """
    refuse_other_model(path, saved, own)
    if saved.optimizer != own.optimizer:
        raise LaunchError(
            f"the checkpoint {path} is of the optimizer {saved.optimizer}, and this one is {own.optimizer}: make the "
            "same, or load the weights alone by load_weights(optimizer, to_state_dict(folder))"
        )


def refuse_other_model(path: Path | str, saved: Fingerprint, own: Fingerprint) -> None:
    """Refuses a checkpoint of another model.

    Raises:
        LaunchError: In what they differ.
    """
    found = saved.differences(own)
    if found:
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise LaunchError(f"the checkpoint {path} is of another model: {'; '.join(found[:_SHOWN])}{more}")
