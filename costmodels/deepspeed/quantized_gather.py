"""What qwZ makes of one of stage 3's gathers: int8 elements and their scales.

The shards that are gathered together are quantized as one tensor; a parameter that is gathered alone is dequantized
without its padding, so that it must have none.

Source: `_all_gather_sequential` and `_all_gather_coalesced`, deepspeed/runtime/zero/partition_parameters.py, 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from costmodels.deepspeed.gather import Gather, MicroBatch
from costmodels.deepspeed.knobs import Knobs
from costmodels.quantized import QuantizedMessage, quantized_gather
from costmodels.workload import Workload

_INT8_BYTES, _FP16_BYTES = 1, 2


def quantized_of_gather(gather: Gather, workload: Workload, world_size: int, knobs: Knobs) -> QuantizedMessage | None:
    """Returns the quantized all-gather, or None where DeepSpeed cannot quantize it."""
    degree = knobs.hpz_partition_size if gather.secondary else world_size
    if len(gather.parameters) == 1:
        (alone,) = gather.parameters
        if workload.elements[alone] % degree:
            return None
    return quantized_gather(padded_elements(gather.parameters, workload, world_size), degree)


def padded_elements(parameters: Iterable[int], workload: Workload, world_size: int) -> int:
    """Returns the elements of parameters, each padded to a multiple of the ranks."""
    padded = _padded(workload, world_size)
    return sum([padded[each] for each in parameters])


@lru_cache(maxsize=32)
def _padded(workload: Workload, world_size: int) -> tuple[int, ...]:
    return tuple(-(-elements // world_size) * world_size for elements in workload.elements)


def dequantizing_bytes(step: Iterable[MicroBatch], workload: Workload, world_size: int) -> int:
    """Returns the bytes beside what a plain gather holds while the largest one of a step is dequantized.

    Its int8 elements are there until all is copied, and the quantizer makes fp16 whatever the model's type. What else
    is under way takes one byte per element, and is counted with the two or more of a plain gather.
    Source: `AllGatherHandle.wait` and `AllGatherCoalescedHandle.wait`,
    deepspeed/runtime/zero/partition_parameters.py, 0.19.8.
    """
    largest = (
        padded_elements(gather.parameters, workload, world_size)
        for micro_batch in step
        for gather in micro_batch.gathers
    )
    return (_INT8_BYTES + _FP16_BYTES) * max(largest, default=0)
