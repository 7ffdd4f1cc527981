"""DeepSpeed's settings that decide its traffic and memory, and how they follow from a strategy.

Stages: (1,1,1) is 0, (1,1,N) is 1, (1,N,N) is 2, (N,N,N) is 3; stage 3 with 1 < s < N is ZeRO++ hpZ.
Names and defaults are those of `deepspeed/runtime/zero/config.py`, version 0.19.8, without the `stage3_` prefix.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import lru_cache

from costmodels.deepspeed.leaf_setting import leaf_setting
from costmodels.engine import Assignment
from costmodels.strategy import Offload, Precision, StepShape
from costmodels.workload import Workload

REDUCE_BUCKET_ELEMENTS = 50_000_000
"""Gradients joined in one message. 100 MB in bf16 reaches a link's full speed; DeepSpeed's own 5e8 costs ten times
the buffer, twice with overlap."""
BUCKETS = 8
"""At least so many buckets: what is in the last one is not hidden by backward."""
PREFETCH_ELEMENTS = 50_000_000
PERSISTENT_ELEMENTS = 100_000
REACH_RANKS = 1_000
"""Ranks up to which messages of these sizes outlast their start-ups. A ring starts up once for every rank (some 4 µs
between nodes, for which a link of 25 GB/s has 100 KB): with more ranks, buckets and what is fetched ahead grow as they
do, and nothing persists, since each parameter that does is gathered alone after every update."""
LIVE_ELEMENTS = 1_000_000_000
SUB_GROUP_ELEMENTS = 100_000_000
"""Elements of a rank's shard updated at once in stage 3: the optimizer's temporaries are of this size."""


DEFAULT_LEAF_CLASSES = (
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
)
"""Classes whose modules stage 3 gathers whole without being told.
Source: `DEFAULT_LEAF_MODULE_CLASSES`, deepspeed/runtime/zero/leaf_module_config.py, 0.19.8."""


ALONE: dict[Offload, int] = {"none": 0, "optimizer": 2, "all": 3}
"""The stage in which a single rank trains."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """What of a DeepSpeed configuration the cost model reads. Sizes are in elements, not bytes."""

    stage: int
    overlap_comm: bool
    """Reductions on a stream of their own. At stage 1 this also moves them from the step's end into its backward."""
    reduce_bucket_size: int = 500_000_000
    allgather_bucket_size: int = 500_000_000
    """Not used by 0.19.8 where torch has all_gather_into_tensor: the flat parameters are gathered at once."""
    contiguous_gradients: bool = True
    reduce_scatter: bool = True
    use_multi_rank_bucket_allreduce: bool = True
    sub_group_size: int = 1_000_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000
    model_persistence_threshold: int = sys.maxsize
    max_live_parameters: int = 1_000_000_000
    """Bounds only the prefetcher: what a module needs now is always gathered."""
    max_reuse_distance: int = 1_000_000_000
    """Parameters used again within so many elements of the recorded order stay gathered."""
    hpz_partition_size: int = 1
    """Ranks that share the secondary partition; 1: none."""
    compute_grad_norm: bool = True
    check_grad_overflow: bool = True
    """`bf16.check_grad_overflow`; fp16 always checks, fp32 never."""
    grad_accum_precision: Precision | None = None
    """`data_types.grad_accum_dtype`; None: the model's own."""
    quantized_weights: bool = False
    """`zero_quantized_weights` (qwZ): stage 3 gathers int8."""
    quantized_gradients: bool = False
    """`zero_quantized_gradients` (qgZ): stage 3 reduces by two all-to-alls of int4."""
    leaf_classes: tuple[str, ...] = DEFAULT_LEAF_CLASSES
    """`leaf_module.classes`: stage 3 gathers their modules whole (`costmodels.deepspeed.leaves`)."""
    leaf_names: tuple[str, ...] = ()
    """`leaf_module.names`, likewise."""
    leaf_name_suffixes: tuple[str, ...] = ()
    """`leaf_module.name_suffixes`, likewise."""


def default_knobs(stage: int) -> Knobs:
    """Returns DeepSpeed's own defaults for `stage`, as a configuration without further keys has them.

    Source: `DeepSpeedZeroConfig` in deepspeed/runtime/zero/config.py, 0.19.8.
    """
    return Knobs(stage=stage, overlap_comm=stage == 3)


def stage_of(assignment: Assignment, world_size: int) -> int | None:
    """Returns the ZeRO stage with these degrees, or None when DeepSpeed has none (all classes must agree)."""
    points = {(strategy.degrees, strategy.secondary_degree) for strategy in assignment}
    if len(points) != 1:
        return None
    ((p, g, o), s) = points.pop()
    if world_size == 1:
        # Stages are about who keeps what; but only the optimizers of stages 1 to 3 can offload.
        return ALONE[assignment[0].offload] if p == s == g == o == 1 else None
    if p == world_size:
        return 3 if p == g == o and s >= 1 and p % s == 0 else None
    return {(1, 1): 0, (1, world_size): 1, (world_size, world_size): 2}.get((g, o)) if p == s == 1 else None


def choose_knobs(workload: Workload, assignment: Assignment, shape: StepShape) -> Knobs:
    """Returns the settings that the planner emits for a strategy that DeepSpeed has.

    A bucket is an eighth of a small model, so that most of it is sent before backward ends and it adds little to the
    memory. Stage 3 holds about two blocks: the one that runs and the next. Backward
    gathers anew (reuse distance 0) unless the strategy keeps the parameters; a recomputed block keeps its own from its
    second forward to its backward, which come together. Parameters persist when they are small in the model too,
    so that "sharded" stays true of small models. Beyond `REACH_RANKS` messages are fewer and larger.
    """
    stage = stage_of(assignment, shape.world_size)
    assert stage is not None, "a strategy that DeepSpeed refuses"
    num_params = max(1, workload.num_params)
    # Aligned to 2 elements: stages 1 and 2 assert that all-gather buckets start at 4 bytes.
    bucket = min(_outlasting(REDUCE_BUCKET_ELEMENTS, shape), max(2, workload.num_trainable_params // BUCKETS // 2 * 2))
    knobs = Knobs(
        stage=stage,
        overlap_comm=stage > 0 and shape.device == "cuda",
        reduce_bucket_size=bucket,
        allgather_bucket_size=bucket,
        sub_group_size=SUB_GROUP_ELEMENTS,
    )
    if stage < 3:
        return knobs
    return _gathering(knobs, workload, assignment, shape, num_params)


def _gathering(knobs: Knobs, workload: Workload, assignment: Assignment, shape: StepShape, num_params: int) -> Knobs:
    block = _largest_block(workload)
    secondary = assignment[0].secondary_degree
    kept = secondary == 1 and shape.world_size > 1
    recomputes = any(strategy.recompute == "full" for strategy in assignment)
    is_near = shape.world_size <= REACH_RANKS
    leaf_classes, leaf_names = leaf_setting(workload, knobs.leaf_classes)
    return replace(
        knobs,
        leaf_classes=leaf_classes,
        leaf_names=leaf_names,
        prefetch_bucket_size=max(1, min(_outlasting(PREFETCH_ELEMENTS, shape), block)),
        param_persistence_threshold=min(PERSISTENT_ELEMENTS, num_params // 1000) if is_near else 0,
        max_live_parameters=num_params if kept else min(LIVE_ELEMENTS, num_params, 2 * block),
        # The order of a step names each parameter two or three times, so that 4 x the model is beyond its end.
        max_reuse_distance=4 * num_params if kept else (2 * block if recomputes else 0),
        hpz_partition_size=secondary if 1 < secondary < shape.world_size else 1,
        quantized_weights=assignment[0].quantized_weights,
        quantized_gradients=assignment[0].quantized_gradients,
    )


def _outlasting(elements: int, shape: StepShape) -> int:
    """Returns the elements of a message that outlasts its start-ups on so many ranks, even."""
    return elements * max(REACH_RANKS, shape.world_size) // REACH_RANKS // 2 * 2


@lru_cache(maxsize=16)
def _largest_block(workload: Workload) -> int:
    """Returns the elements of the largest block; of the model, where it has none."""
    sizes = (sum(workload.elements[parameter] for parameter in block.parameters) for block in workload.blocks)
    return max(sizes, default=max(1, workload.num_params))
