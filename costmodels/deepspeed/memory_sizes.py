"""The sizes that DeepSpeed's memory is counted in: element widths, and when which gradient is complete."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.reduce import gradient_order
from costmodels.states import FP32_BYTES, PARAMETER_WIDTH_BYTES, shard_elements, state_widths
from costmodels.strategy import StepShape
from costmodels.workload import Workload

NORM_BYTES = 8
"""Gradient norms are taken in fp64, of a copy of each gradient tensor.
Source: `get_norm_dtype` and its callers, deepspeed/runtime/zero/utils.py, 0.19.8."""

_OVERTAKING_BYTES = 32 * 1024**2
"""Measured on 2 busy cores (torch 2.13, 4 ranks): 5 MB overtake most times, 16 MB one time in four, 126 MB never."""


@dataclass(frozen=True)
class Sizes:
    """One workload under one set of knobs. Elements are counted per tensor, full size unless named a shard."""

    workload: Workload
    knobs: Knobs
    shape: StepShape

    @property
    def of_gradients(self) -> Sizes:
        """The same as far as gradients and their reductions go: equal for all strategies that share them."""
        num_micro_batches = 1 if self.knobs.stage == 3 else min(2, self.shape.num_micro_batches)
        return Sizes(
            self.workload,
            replace(
                self.knobs,
                sub_group_size=0,
                prefetch_bucket_size=0,
                param_persistence_threshold=0,
                model_persistence_threshold=0,
                max_live_parameters=0,
                max_reuse_distance=0,
                hpz_partition_size=1,
                quantized_weights=False,
            ),
            replace(self.shape, micro_batch_size=1, num_micro_batches=num_micro_batches),
        )

    @cached_property
    def width_bytes(self) -> int:
        """Bytes of an element that the model computes with; also of gradients as autograd makes and DeepSpeed sends."""
        return PARAMETER_WIDTH_BYTES[self.shape.precision]

    @property
    def accumulated_bytes(self) -> int:
        """Bytes of an accumulated gradient element: `data_types.grad_accum_dtype`."""
        return PARAMETER_WIDTH_BYTES[self.knobs.grad_accum_precision or self.shape.precision]

    @property
    def moments_bytes(self) -> int:
        """Bytes per element of the optimizer's own fp32 states."""
        return state_widths(self.shape.precision, self.shape.optimizer).moments

    @cached_property
    def gather_copies(self) -> int:
        """Buffers of the gathered size that one all-gather or reduce-scatter holds beside its own.

        Source: ProcessGroupGloo.cpp (torch 2.13): both work on a flat copy. NCCL works in place.
        """
        return 1 if self.shape.device == "cpu" else 0

    def frees_late(self, copied_bytes: int) -> bool:
        """Whether a flat copy is still there after `copied_bytes` have been copied out of it.

        Under gloo the thread that reduced may hold it for some milliseconds on: a few bytes overtake it, and the worst
        of several ranks and steps is counted. NCCL's copies are given up in the order of the stream.
        """
        return self.shape.device == "cpu" and copied_bytes < _OVERTAKING_BYTES

    @property
    def num_buckets(self) -> int:
        """Reduction buckets of stages 1 and 2: two take turns with overlap.

        Source: `setup_buckets`, deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8.
        """
        if not self.knobs.contiguous_gradients:
            return 0
        return 2 if self.knobs.overlap_comm else 1

    @cached_property
    def elements(self) -> list[int]:
        """Elements of every parameter, by index."""
        return list(self.workload.elements)

    @cached_property
    def trainable(self) -> tuple[int, ...]:
        """Elements of each trainable parameter, in the order of the optimizer's group."""
        return tuple(n for n, p in zip(self.elements, self.workload.parameters, strict=True) if p.trainable)

    @cached_property
    def frozen(self) -> tuple[int, ...]:
        """Elements of each frozen parameter."""
        return tuple(n for n, p in zip(self.elements, self.workload.parameters, strict=True) if not p.trainable)

    @cached_property
    def completed(self) -> tuple[tuple[int, ...], ...]:
        """For each segment, the parameters whose gradients are complete in it, in order; a tied one at its last use."""
        last_use = {index: number for number, uses in enumerate(self._uses) for index in uses}
        found: list[list[int]] = [[] for _ in self._uses]
        for index in gradient_order(self.workload, self.knobs):
            if index in last_use:
                found[last_use[index]].append(index)
        return tuple(tuple(completed) for completed in found)

    @cached_property
    def unfinished_bytes(self) -> tuple[int, ...]:
        """For each segment, bytes of the sums of tied parameters that are used again further on."""
        found = []
        unfinished: set[int] = set()
        for uses, completed in zip(self._uses, self.completed, strict=True):
            unfinished.update(uses)
            unfinished.difference_update(completed)
            found.append(self.width_bytes * sum(self.elements[index] for index in sorted(unfinished)))
        return tuple(found)

    def waits(self, index: int) -> bool:
        """Whether a complete gradient waits for its reduction where it is: it is larger than the bucket, or none is.

        Source: `reduce_independent_p_g_buckets_and_remove_grads` in deepspeed/runtime/zero/stage_1_and_2.py and
        `__add_grad_to_ipg_bucket` in stage3.py, 0.19.8.
        """
        return not self.knobs.contiguous_gradients or self.elements[index] > self.knobs.reduce_bucket_size

    @cached_property
    def _uses(self) -> tuple[tuple[int, ...], ...]:
        """For each segment, the trainable parameters whose gradients it computes or adds to."""
        return tuple(
            tuple(
                index
                for call in (segment.calls if segment.phase == "backward" else ())
                for index in call.parameters
                if self.workload.parameters[index].trainable
            )
            for segment in self.workload.segments
        )

    def shards(self, elements: tuple[int, ...]) -> int:
        """Elements of a rank's shards when each tensor is cut into N parts of its own (stage 3)."""
        return _shards(elements, self.shape.world_size)

    def update_gradient_bytes(self, elements: int) -> int:
        """Bytes of the flat gradients of `elements` parameters while they are made ready for the update.

        A flat copy, then its fp32 copy where it is not fp32 yet.
        Source: `step`, deepspeed/runtime/zero/stage_1_and_2.py and stage3.py, 0.19.8.
        """
        fp32_bytes = 0 if self.accumulated_bytes == FP32_BYTES else FP32_BYTES * elements
        return self.accumulated_bytes * elements + fp32_bytes


@lru_cache(maxsize=64)
def _shards(elements: tuple[int, ...], world_size: int) -> int:
    return sum(shard_elements(number, world_size) for number in elements)
