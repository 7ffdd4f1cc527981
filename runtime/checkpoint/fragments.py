"""Where the fp32 values of a model's parameters are within a DeepSpeed engine.

Source: DeepSpeed 0.19.8. Stage 3: runtime/zero/stage3.py (`fp16_groups`, `fp32_partitioned_groups_flat`). Stages 1 and
2: runtime/zero/stage_1_and_2.py (`round_robin_bit16_groups`, `single_partition_of_fp32_groups`). Stage 1 in bf16 with
gradients in fp32: runtime/bf16_optimizer.py and `_hp_mapping` of utils/mixed_precision_linkage.py. Without ZeRO:
runtime/fp16/{fused,unfused}_optimizer.py, or the parameters themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from runtime.ranks import LaunchError


@dataclass(frozen=True, slots=True)
class Fragment:
    """A parameter's elements within a flat tensor that the optimizer of this rank updates."""

    parameter: nn.Parameter
    """The model's."""
    group: int
    """Of the optimizer."""
    flat: Tensor
    offset: int
    """In the flat tensor."""
    first: int
    """In the parameter."""
    length: int
    is_replicated: bool
    """Whether every rank has the same."""

    def within(self, flat: Tensor) -> Tensor:
        """Returns the fragment of the flat tensor, or of a state in its shape."""
        return flat.detach().view(-1)[self.offset : self.offset + self.length]


def fragments_of(engine: Any) -> list[Fragment]:
    """Returns a fragment for each trained parameter of an engine, in the order of its optimizer; some have no elements.

    Raises:
        LaunchError: The engine keeps its states where only itself finds them.
    """
    optimizer = engine.optimizer
    if engine.dp_world_size != dist.get_world_size():
        raise LaunchError("a model that is split by tensor, pipeline or expert parallelism cannot be saved or loaded")
    if hasattr(optimizer, "fp32_partitioned_groups_flat"):
        return list(_of_stage_3(optimizer))
    if hasattr(optimizer, "single_partition_of_fp32_groups"):
        return list(_of_stages_1_and_2(optimizer))
    if hasattr(optimizer, "fp32_groups_flat_partition"):
        return list(_mapped(optimizer.bf16_groups, optimizer.fp32_groups_flat_partition))
    if hasattr(optimizer, "fp32_groups_flat"):
        return list(_flattened(optimizer))
    if hasattr(optimizer, "fp32_groups"):
        return list(_one_by_one(optimizer.fp16_groups, optimizer.fp32_groups))
    groups = [group["params"] for group in optimizer.param_groups]
    return list(_one_by_one(groups, groups))


def _of_stage_3(optimizer: Any) -> Iterator[Fragment]:
    if optimizer.swap_optimizer or optimizer.params_in_nvme_and_cpu:
        raise LaunchError("states that DeepSpeed swaps to NVMe cannot be saved or loaded: keep them on host or device")
    for number, (parameters, flat) in enumerate(
        zip(optimizer.fp16_groups, optimizer.fp32_partitioned_groups_flat, strict=True)
    ):
        offset = 0
        for parameter in parameters:
            elements = parameter.partition_numel()
            first, length = own_part(parameter)
            yield Fragment(parameter, optimizer.sub_group_to_group_id[number], flat, offset, first, length, False)
            offset += elements


def own_part(parameter: Any) -> tuple[int, int]:
    """Returns the first element and the number of those of a parameter of stage 3 that this rank has."""
    elements = parameter.partition_numel()
    first = min(dist.get_rank(group=parameter.ds_process_group) * elements, parameter.ds_numel)
    return first, min(elements, parameter.ds_numel - first)


def _of_stages_1_and_2(optimizer: Any) -> Iterator[Fragment]:
    """Goes by the order of the flat tensors, which with `round_robin_gradients` is not that of the groups."""
    for number, flat in enumerate(optimizer.single_partition_of_fp32_groups):
        start = dist.get_rank(group=optimizer.real_dp_process_group[number]) * flat.numel()
        parameters, offsets = optimizer.round_robin_bit16_groups[number], optimizer.round_robin_bit16_offsets[number]
        for parameter, offset in zip(parameters, offsets, strict=True):
            first = max(offset, start)
            length = min(offset + parameter.numel(), start + flat.numel()) - first
            if length > 0:
                yield Fragment(parameter, number, flat, first - start, first - offset, length, False)
            else:
                yield Fragment(parameter, number, flat, 0, 0, 0, False)


def _mapped(groups: Any, flats: Any) -> Iterator[Fragment]:
    for number, (parameters, flat) in enumerate(zip(groups, flats, strict=True)):
        for parameter in parameters:
            mapping = parameter._hp_mapping
            if mapping is None:
                yield Fragment(parameter, number, flat, 0, 0, 0, False)
            else:
                here, there = mapping.hp_fragment_address, mapping.lp_fragment_address
                yield Fragment(parameter, number, flat, here.start, there.start, here.numel, False)


def _flattened(optimizer: Any) -> Iterator[Fragment]:
    for number, (parameters, flat) in enumerate(zip(optimizer.fp16_groups, optimizer.fp32_groups_flat, strict=True)):
        offset = 0
        for parameter in parameters:
            yield Fragment(parameter, number, flat, offset, 0, parameter.numel(), True)
            offset += parameter.numel()


def _one_by_one(groups: Any, wide_groups: Any) -> Iterator[Fragment]:
    for number, (parameters, wide) in enumerate(zip(groups, wide_groups, strict=True)):
        for parameter, flat in zip(parameters, wide, strict=True):
            yield Fragment(parameter, number, flat, 0, 0, parameter.numel(), True)
