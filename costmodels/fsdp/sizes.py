"""What a block's parameters are once they are sharded: p shards of whole rows, cut on into o/p slices each.

Every parameter is sharded over p ranks by rows, and padded to a multiple of p of them; its shard is cut into o/p slices
of equal length, the last of them padded. Gradients and optimizer states are sharded as whole slices. With P elements of
all parameters of a block, P_t of the trained ones, of which a parameter has n rows of w elements:

    gathered over p          sum of p ceil(n/p) w                     = P where all rows divide by p
    slice of o               S = sum of ceil(ceil(n/p) w / (o/p))     = P_t/o where all divide
    reduced over g, to o     o S, (o/g) S                             = P_t, P_t/g
    spread from o to p       (o/p) S                                  = P_t/p

Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param.py, `_init_sharded_param`, for the rows;
`runtime/fsdp/layout.py` for the slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from costmodels.workload import Parameter, Workload


class Rows(NamedTuple):
    """One parameter."""

    num_rows: int
    row_elements: int
    trainable: bool


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """The parameters that a block owns."""

    parameters: tuple[Rows, ...] = ()

    @property
    def num_params(self) -> int:
        """P: elements of all parameters."""
        return gathered_elements(self.parameters, 1)

    @property
    def num_trainable(self) -> int:
        """P_t: elements of the trained parameters."""
        return slice_elements(self.parameters, 1, 1)

    def gathered_elements(self, param_degree: int) -> int:
        """Returns the elements of all p shards."""
        return gathered_elements(self.parameters, param_degree)

    def shard_elements(self, param_degree: int) -> int:
        """Returns the elements of the parameters that a rank keeps."""
        return gathered_elements(self.parameters, param_degree) // param_degree

    def slice_elements(self, param_degree: int, optim_degree: int) -> int:
        """Returns the elements that the fullest rank updates."""
        return slice_elements(self.parameters, param_degree, optim_degree)

    def accumulated_elements(self, param_degree: int, grad_degree: int, optim_degree: int) -> int:
        """Returns the elements of the gradients that a rank adds up: its slices of g, or where g = 1 all, unpadded."""
        if grad_degree == 1:
            return self.num_trainable
        return optim_degree // grad_degree * self.slice_elements(param_degree, optim_degree)


@lru_cache(maxsize=16)
def block_sizes(workload: Workload) -> tuple[BlockSizes, ...]:
    """Returns the sizes of each block, in the order of `Workload.blocks`; equal blocks share theirs."""
    known: dict[BlockSizes, BlockSizes] = {}
    found = []
    for block in workload.blocks:
        sizes = BlockSizes(tuple(_rows(workload.parameters[index]) for index in block.parameters))
        found.append(known.setdefault(sizes, sizes))
    return tuple(found)


def _rows(parameter: Parameter) -> Rows:
    # A scalar is a row.
    return Rows(parameter.shape[0] if parameter.shape else 1, prod(parameter.shape[1:]), parameter.trainable)


@lru_cache(maxsize=16384)
def gathered_elements(parameters: tuple[Rows, ...], param_degree: int) -> int:
    """Returns the elements of some parameters whose rows are padded to a multiple of p."""
    return sum(_padded_rows(each, param_degree) * each.row_elements for each in parameters)


@lru_cache(maxsize=16384)
def slice_elements(parameters: tuple[Rows, ...], param_degree: int, optim_degree: int) -> int:
    """Returns the elements of the fullest of o slices of the trained ones of some parameters."""
    slices = optim_degree // param_degree
    return sum(
        -(-_padded_rows(each, param_degree) // param_degree * each.row_elements // slices)
        for each in parameters
        if each.trainable
    )


def _padded_rows(parameter: Rows, degree: int) -> int:
    return -(-parameter.num_rows // degree) * degree
