"""The model states of a rank under the fsdp engine: padded shards of parameters, of gradients and optimizer states."""

from __future__ import annotations

from collections import Counter

from costmodels.engine import Assignment
from costmodels.fsdp.sizes import BlockSizes, block_sizes
from costmodels.states import StateBytes, StateWidths, state_widths
from costmodels.strategy import StepShape, Strategy
from costmodels.workload import Workload


def block_state_bytes(sizes: BlockSizes, strategy: Strategy, widths: StateWidths) -> StateBytes:
    """Returns what the fullest rank holds of a block: c_p P/p + c_g P_t/g + k P_t/o, padded.

    Gradients that are reduced once in a step (g = 1) lie as autograd makes them, whole and without padding. A copy of
    degree s is held from a block's forward to its backward, not at rest.

    Source: design of the search space; ZeRO (arXiv 1910.02054), figure 1; `costmodels.fsdp.sizes` for the padding.
    """
    return StateBytes(
        parameters=widths.parameter * sizes.shard_elements(strategy.param_degree),
        gradients=widths.gradient * sizes.accumulated_elements(*strategy.degrees),
        optimizer_states=widths.optimizer * sizes.slice_elements(strategy.param_degree, strategy.optim_degree),
    )


def fsdp_state_bytes(workload: Workload, assignment: Assignment, shape: StepShape) -> StateBytes:
    """Returns the model states of the fullest rank, each block sharded as its class is assigned."""
    widths = state_widths(shape.precision, shape.optimizer)
    blocks = zip(workload.blocks, block_sizes(workload), strict=True)
    equal = Counter((sizes, block.block_class) for block, sizes in blocks)
    total = StateBytes()
    for (sizes, block_class), count in equal.items():
        total += block_state_bytes(sizes, assignment[block_class], widths).times(count)
    return total
