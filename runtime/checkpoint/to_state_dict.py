"""Turns a checkpoint into a plain `state_dict`."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader

from runtime.checkpoint.dcp_planners import dtypes
from runtime.checkpoint.fingerprint import read_fingerprint
from runtime.checkpoint.folder import find_checkpoint, read_document
from runtime.checkpoint.load import check_files, read
from runtime.checkpoint.ranges import Range, value_key


def to_state_dict(folder: str | Path, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Returns the whole parameters and buffers of the last complete checkpoint, by the names of the model's own.

    It is for one process, with host memory for all of it; no process group is needed.

    Args:
        folder: Of the training's checkpoints, or one of these.
        dtype: Of floating-point tensors; None: as they were saved, which is fp32 for trained parameters.

    Raises:
        LaunchError: There is no complete checkpoint, or it is damaged.
    """
    path = find_checkpoint(folder)
    check_files(path)
    fingerprint = read_fingerprint(read_document(path)["fingerprint"])
    types = dtypes(FileSystemReader(path).read_metadata().state_dict_metadata)
    found: dict[str, Tensor] = {}
    ranges = []
    for name, entry in fingerprint.entries.items():
        elements = math.prod(entry.shape)
        flat = torch.empty(elements, dtype=types.get(value_key(name), torch.float32))
        ranges.append(Range(value_key(name), elements, 0, flat, False))
        found[name] = flat.view(entry.shape)
    read(path, ranges, None)
    if dtype is not None:
        found = {name: each.to(dtype) if each.is_floating_point() else each for name, each in found.items()}
    return found | {alias: found[first] for alias, first in fingerprint.aliases.items()}
