"""Writes a checkpoint by `torch.distributed.checkpoint`, and makes it the last one when every rank has written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.checkpoint.storage import WriteResult

from runtime.checkpoint.coordinate import reasons
from runtime.checkpoint.dcp_planners import SaveRanges
from runtime.checkpoint.folder import clear, commit, partial_folder
from runtime.checkpoint.ranges import Range
from runtime.ranks import LaunchError

OBJECTS = "objects"
"""The key of what has no elements to deal out."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a rank writes."""

    ranges: list[Range]
    objects: dict[str, Any]
    """The same on all ranks."""
    document: dict[str, Any]
    """For `checkpoint.json`."""


def write(root: Path, contents: Contents, keep: int | None, group: Any) -> None:
    """Writes a checkpoint; every rank of `group` calls it.

    Raises:
        LaunchError: A rank could not write: which, and why. The checkpoints before it stay.
    """
    partial = partial_folder(root, contents.document["step"])
    try:
        dcp_save(
            {OBJECTS: contents.objects},
            storage_writer=_Writer(root, partial, contents.document, keep),
            planner=SaveRanges(contents.ranges),
            process_group=group,
        )
    except CheckpointException as error:
        raise LaunchError(f"cannot write the checkpoint {partial}: {reasons(error)}") from error


class _Writer(FileSystemWriter):
    """Writes beside the complete checkpoints, and takes the name of one at the end.

    Source: PyTorch 2.13 torch/distributed/checkpoint/state_dict_saver.py, `_save_state_dict`: the coordinator runs
    `prepare_global_plan` before any rank writes, and `finish` after all have written; all wait for both.
    """

    def __init__(self, root: Path, partial: Path, document: dict[str, Any], keep: int | None) -> None:
        super().__init__(partial, thread_count=1)
        self._root = root
        self._partial = partial
        self._document = document
        self._keep = keep

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Leaves it to the coordinator to make the folder."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Makes the folder, once for all ranks."""
        clear(self._root, self._partial)
        return super().prepare_global_plan(plans)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Writes what is where, and makes the checkpoint complete."""
        super().finish(metadata, results)
        commit(self._root, self._partial, self._document, self._keep)
