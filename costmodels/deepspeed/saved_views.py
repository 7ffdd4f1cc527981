"""What stage 3 cannot free in forward: the memory of parameters of which autograd has saved a view.

A parameter is released by giving its `data` other memory. What a saved view lies in stays until backward has read it,
while the parameter is gathered anew beside it.
Source: `free_param`, deepspeed/runtime/zero/partition_parameters.py, 0.19.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from costmodels.deepspeed.micro_batch import MicroBatch
from costmodels.engine import Assignment
from costmodels.workload import Phase, Workload


def saved_view_elements(
    workload: Workload, assignment: Assignment, micro_batches: Sequence[MicroBatch]
) -> tuple[int, ...]:
    """Returns for each segment the elements of released parameters that stay because of saved views.

    From the segment after the one that uses the parameter in forward, to the one that uses it in backward; of a
    recomputed block in its backward only. What is not gathered anew in backward was never released.
    """
    again = Counter(
        parameter
        for micro_batch in micro_batches[-1:]
        for gather in micro_batch.gathers
        if gather.phase == "backward"
        for parameter in gather.parameters
    )
    found = [0] * len(workload.segments)
    for parameter in workload.saved_views:
        used = {phase: _segment_of(parameter, phase, workload) for phase in ("forward", "backward")}
        first, last = used["forward"], used["backward"]
        if first is None or last is None:
            continue
        block = workload.blocks[workload.segments[last].block]
        recomputed = block.recomputable and assignment[block.block_class].recompute == "full"
        if again[parameter] > recomputed:
            for number in range(last if recomputed else first + 1, last + 1):
                found[number] += workload.elements[parameter]
    return tuple(found)


def _segment_of(parameter: int, phase: Phase, workload: Workload) -> int | None:
    """Returns the last segment of a phase in which a module that holds the parameter is called."""
    numbers = (
        number
        for number, segment in enumerate(workload.segments)
        if segment.phase == phase and any(parameter in call.parameters for call in segment.calls)
    )
    return max(numbers, default=None)
