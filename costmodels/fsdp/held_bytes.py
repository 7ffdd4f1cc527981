"""How many bytes a block holds of each kind (`costmodels.fsdp.holds`), by its strategy."""

from __future__ import annotations

from functools import lru_cache

from costmodels.fsdp.holds import Kind, Manner, manner_of
from costmodels.fsdp.quantized import arriving_bytes
from costmodels.fsdp.sizes import BlockSizes, Rows
from costmodels.states import StateWidths
from costmodels.strategy import Strategy


def held_bytes(kind: Kind, sizes: BlockSizes, strategy: Strategy, widths: StateWidths) -> int:
    """Returns the bytes of one kind that a block of some strategy holds once; 0 where it holds none."""
    p, s, (_, g, o) = strategy.param_degree, strategy.secondary_degree, strategy.degrees
    manner = manner_of(strategy)
    if kind in ("anew", "kept"):
        # A message of int8 is there until the block begins; here it counts for as long as what it becomes.
        arriving = arriving_bytes(sizes, strategy) if kind == "anew" else 0
        return widths.parameter * sizes.gathered_elements(p) + arriving if manner.gathered == kind else 0
    if kind == "partial":
        return widths.parameter * sizes.gathered_elements(p) // s if 1 < s < p else 0
    if kind == "input":
        return widths.gradient * o * sizes.slice_elements(p, o) if manner.reducing != "never" else 0
    if kind == "copy":
        return widths.gradient * (o // g) * sizes.slice_elements(p, o) if 1 < g < o else 0
    if kind == "filling":
        return widths.gradient * _uneven_elements(sizes.parameters, p, o) if manner.reducing != "never" else 0
    return spread_bytes(sizes, strategy, widths) if (p == 1) == (kind == "spread_whole") else 0


def least_bytes(kind: Kind, sizes: BlockSizes, manner: Manner, widths: StateWidths) -> int:
    """Returns what all blocks of a manner hold of a kind: of some what no padding adds, of others nothing."""
    if kind in ("anew", "kept"):
        return widths.parameter * sizes.num_params if manner.gathered == kind else 0
    if kind == "input":
        return widths.gradient * sizes.num_trainable if manner.reducing != "never" else 0
    return 0


def spread_bytes(sizes: BlockSizes, strategy: Strategy, widths: StateWidths) -> int:
    """Returns what a block holds while its updated parameters are spread between p and o."""
    param_degree, optim_degree = strategy.param_degree, strategy.optim_degree
    if optim_degree == param_degree:
        return 0
    return widths.parameter * optim_degree // param_degree * sizes.slice_elements(param_degree, optim_degree)


@lru_cache(maxsize=16384)
def _uneven_elements(parameters: tuple[Rows, ...], param_degree: int, optim_degree: int) -> int:
    """Returns the elements of the largest trained parameter that is padded for its copy; 0 where none is.

    Source: `runtime/fsdp/layout.py`, `Layout._padded`.
    """
    slices = optim_degree // param_degree
    largest = 0
    for each in parameters:
        shard = -(-each.num_rows // param_degree) * each.row_elements
        padded = param_degree * slices * -(-shard // slices)
        if each.trainable and padded != each.num_rows * each.row_elements:
            largest = max(largest, padded)
    return largest
