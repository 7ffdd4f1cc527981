"""Whether a real step of the model fits into this machine's memory."""

from __future__ import annotations

import os

from planner.errors import InputError
from planner.model_graph import ModelGraph
from planner.verify.walk import walk

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
_COPIES = 3
"""The weights, the copies that the replay reads, and one more of them that it writes into."""
_SHARE = 0.8


def check_room(graph: ModelGraph, micro_batch_size: int) -> None:
    """Makes sure that the real step can run here.

    Raises:
        InputError: It needs more memory than is free.
    """
    workload = graph.workload
    weight_bytes = workload.num_params * 4 * _COPIES
    step_bytes = walk(workload, micro_batch_size, recompute=False).peak_bytes
    needed_bytes = weight_bytes + step_bytes + workload.input_bytes.at(micro_batch_size)
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed_bytes > _SHARE * free_bytes:
        raise InputError(
            f"a real step of {graph.name} needs about {needed_bytes / 2**30:,.1f} GiB here, and "
            f"{free_bytes / 2**30:,.1f} GiB are free. Verify a smaller model of the same class: fewer and narrower "
            "layers run the same operators (--model-arg, or a config of your own), or a shorter --sequence-length"
        )
