"""Tells `torch.distributed.checkpoint` which ranges of which flat tensors a rank writes and reads.

Source: PyTorch 2.13 torch/distributed/checkpoint/planner.py: its planners are made to be extended by
`create_local_plan` and the look-up of what the plan names.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from runtime.checkpoint.ranges import Range
from runtime.ranks import LaunchError


class SaveRanges(DefaultSavePlanner):
    """Writes ranges, and from the coordinator the objects in DCP's own `state_dict`."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        """Takes this rank's ranges; those without elements or that another rank writes are left out."""
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._ranges = {_index(each): each for each in ranges if each.is_written and each.values.numel()}

    def create_local_plan(self) -> SavePlan:
        """Returns what this rank writes."""
        plan = super().create_local_plan()
        objects = plan.items if self.is_coordinator else []
        self.plan = SavePlan([*objects, *(_write_item(index, each) for index, each in self._ranges.items())])
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Returns the elements of a range, or an object."""
        found = self._ranges.get(index)
        return super().lookup_object(index) if found is None else found.values.detach()


class LoadRanges(DefaultLoadPlanner):
    """Fills ranges in place; DCP's own `state_dict` gets the objects."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        """Takes what this rank needs."""
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._ranges = {_index(each): each for each in ranges if each.values.numel()}

    def create_local_plan(self) -> LoadPlan:
        """Returns what this rank reads, from whichever pieces were written.

        Raises:
            LaunchError: The checkpoint has no such tensor.
        """
        plan = super().create_local_plan()
        assert self.metadata is not None
        for index, each in self._ranges.items():
            saved: Any = self.metadata.state_dict_metadata.get(index.fqn)
            if saved is None or saved.size != torch.Size([each.num_elements]):
                raise LaunchError(f"the checkpoint is damaged: it has no {index.fqn} of {each.num_elements} elements")
            chunk = ChunkStorageMetadata(torch.Size([each.first]), torch.Size([each.values.numel()]))
            plan.items += create_read_items_for_chunk_list(index.fqn, saved, [chunk])
        return plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Takes an object, with its tensors in host memory."""
        self.state_dict[read_item.dest_index.fqn] = torch.load(value, map_location="cpu", weights_only=False)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Returns the memory of a range."""
        return self._ranges[index].values.detach()


def _index(each: Range) -> MetadataIndex:
    return MetadataIndex(each.key, torch.Size([each.first]))


def _write_item(index: MetadataIndex, each: Range) -> WriteItem:
    chunk = ChunkStorageMetadata(torch.Size([each.first]), torch.Size([each.values.numel()]))
    properties = TensorProperties(dtype=each.values.dtype)
    size = torch.Size([each.num_elements])
    return WriteItem(index, WriteItemType.SHARD, tensor_data=TensorWriteData(chunk, properties, size))


def dtypes(metadata: Mapping[str, Any]) -> dict[str, torch.dtype]:
    """Returns the type of each tensor in DCP's description of a checkpoint."""
    return {key: each.properties.dtype for key, each in metadata.items() if hasattr(each, "properties")}
