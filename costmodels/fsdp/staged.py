"""What a rank holds between the stages of collectives that go level by level."""

from __future__ import annotations

from collections.abc import Iterable

from costmodels.engine import Assignment, Message
from costmodels.fsdp.hierarchical import between_stages_bytes
from costmodels.fsdp.traffic import BlockTraffic, block_traffic, is_sent
from costmodels.strategy import StepShape
from costmodels.workload import Workload


def staged_bytes(workload: Workload, assignment: Assignment, shape: StepShape) -> int:
    """Returns what is held in every segment, at most: the part of one gather, and that of one reduction.

    More of them are in flight, but what a stage leaves is a part of the message that its innermost level divides, and
    those before the first stage or in the last hold no more than what comes.
    """
    if not any(each.hierarchical for each in assignment):
        return 0
    blocks = [each for each in block_traffic(workload, assignment, shape) if each.strategy.hierarchical]
    gathers = [_most([block.forward(), *block.gathers_again(), block.update()], block) for block in blocks]
    reductions = [_most([*block.reductions(), *block.boundary()], block) for block in blocks]
    return max(gathers, default=0) + max(reductions, default=0)


def _most(messages: Iterable[Message], block: BlockTraffic) -> int:
    sizes, width = block.shape.level_sizes, block.widths.gradient
    return max((between_stages_bytes(each, sizes, width) for each in messages if is_sent(each)), default=0)
