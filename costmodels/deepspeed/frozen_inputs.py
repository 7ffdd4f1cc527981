"""What stage 3 keeps for backward beside the traced step: the inputs of linear maps whose weights are frozen.

Source: `LinearFunctionForZeroStage3` saves its input whether or not the weight has a gradient,
deepspeed/runtime/zero/linear.py, 0.19.8.
"""

from __future__ import annotations

from costmodels.engine import Assignment
from costmodels.workload import Workload


def frozen_input_bytes(
    workload: Workload, assignment: Assignment, micro_batch_size: int
) -> tuple[tuple[int, int], ...]:
    """Returns for each segment what is kept of them as it begins, and at the peak of its activations.

    Backward gives a block's own up one by one, early in it: they are gone by its peak. A recomputed block has its own
    in its backward only, where the peak comes with them, right after its second forward.
    """
    kept_bytes = 0
    found: list[tuple[int, int]] = []
    of_block: dict[int, list[int]] = {}
    for segment in workload.segments:
        block = workload.blocks[segment.block]
        recomputed = block.recomputable and assignment[block.block_class].recompute == "full"
        if segment.phase == "forward":
            own_bytes = segment.frozen_input_bytes.at(micro_batch_size)
            of_block.setdefault(segment.block, []).append(own_bytes)
            before_bytes = kept_bytes
            kept_bytes += 0 if recomputed else own_bytes
            found.append((before_bytes, kept_bytes))
            continue
        waiting = of_block.get(segment.block)
        own_bytes = waiting.pop() if waiting else 0
        rest_bytes = kept_bytes - (0 if recomputed else own_bytes)
        found.append((kept_bytes, rest_bytes + (own_bytes if recomputed else 0)))
        kept_bytes = rest_bytes
    return tuple(found)
