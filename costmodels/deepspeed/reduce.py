"""How DeepSpeed joins gradients into buckets, and what it sends for one: bucket by bucket, in the order of gradients.

Sizes are in elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.leaves import leaves_of
from costmodels.engine import Operation
from costmodels.workload import Workload

ENGINE_BUCKET_ELEMENTS = 500_000_000
"""Stage 0's bucket; no setting changes it. Source: MEMORY_OPT_ALLREDUCE_SIZE, deepspeed/runtime/engine.py, 0.19.8."""


def gradient_order(workload: Workload, knobs: Knobs) -> tuple[int, ...]:
    """Returns the trainable parameters in the order in which their gradients come to be reduced.

    That is the order in which backward completes them, as traced: of a weight and its bias autograd reaches the bias
    first, since the weight is transposed before it is used. Stage 3 has a linear operator of its own, which gives both
    at once, and the weight is taken first; it takes the gradients of a module that is gathered whole together, when
    the last of them is complete, and zeros for those it lacks. Else what the loss does not reach is not reduced.

    Source: `LinearFunctionForZeroStage3`, deepspeed/runtime/zero/linear.py, and `reduce_leaf_module_grads`,
    deepspeed/runtime/zero/stage3.py, 0.19.8.
    """
    leaves = tuple(leaves_of(workload, knobs).values()) if knobs.stage == 3 else ()
    return _gradient_order(workload, knobs.stage, leaves)


@lru_cache(maxsize=16)
def _gradient_order(workload: Workload, stage: int, leaves: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    order = [index for segment in workload.segments for index in segment.gradients]
    if stage < 3:
        return tuple(order)
    linears = frozenset(workload.linears)
    for place, (bias, weight) in enumerate(list(pairwise(order))):
        if (weight, bias) in linears:
            order[place : place + 2] = weight, bias
    for parameters in leaves:
        together = [index for index in parameters if workload.parameters[index].trainable]
        reached = [index for index in order if index in together]
        if reached:
            place = order.index(reached[-1])
            before = [index for index in order[:place] if index not in together]
            order = [*before, *together, *order[place + 1 :]]
    return tuple(order)


def engine_buckets(sizes: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Yields the sizes of each of stage 0's all-reduces: a bucket is sent when it has grown beyond the limit.

    Source: `allreduce_no_retain`, deepspeed/runtime/engine.py, 0.19.8.
    """
    yield from flushed_after(sizes, ENGINE_BUCKET_ELEMENTS)


def flushed_after(sizes: Iterable[int], limit: int) -> Iterator[tuple[int, ...]]:
    """Yields consecutive sizes joined, each time the first whose sum is more than `limit`, then the rest."""
    joined: list[int] = []
    elements = 0
    for size in sizes:
        joined.append(size)
        elements += size
        if elements > limit:
            yield tuple(joined)
            joined, elements = [], 0
    if elements:
        yield tuple(joined)


def flat_copy(pieces: tuple[int, ...]) -> int:
    """Returns the elements of the copy that joins `pieces` into one message; a single one is sent where it is.

    Source: `flatten_dense_tensors`, torch/csrc/utils/tensor_flatten.h, 2.13.
    """
    return sum(pieces) if len(pieces) > 1 else 0


def filled_buckets(parameters: Iterable[int], sizes: list[int], limit: int) -> Iterator[tuple[int, ...]]:
    """Yields the parameters of each bucket: one is sent when the next parameter does not fit; a huge one goes alone."""
    for _, sent in arrivals(parameters, sizes, limit):
        if sent:
            yield sent


def arrivals(parameters: Iterable[int], sizes: list[int], limit: int) -> Iterator[tuple[int | None, tuple[int, ...]]]:
    """Yields each parameter with the bucket that is sent to make room for it (mostly none), at last None with the rest.

    Source: `reduce_independent_p_g_buckets_and_remove_grads` in deepspeed/runtime/zero/stage_1_and_2.py and
    stage3.py, 0.19.8.
    """
    bucket: list[int] = []
    elements = 0
    for parameter in parameters:
        sent: tuple[int, ...] = ()
        if bucket and elements + sizes[parameter] > limit:
            sent, bucket, elements = tuple(bucket), [], 0
        yield parameter, sent
        bucket.append(parameter)
        elements += sizes[parameter]
    yield None, tuple(bucket)


_Asked = tuple[tuple[int, ...], bool, bool, int]
"""A bucket, and the settings that decide its messages."""


@lru_cache(maxsize=8)
def flat_shards(workload: Workload, world_size: int) -> FlatShards:
    """Returns the flat buffer of a workload's trainable parameters, in their order."""
    trainable = [index for index, parameter in enumerate(workload.parameters) if parameter.trainable]
    return FlatShards(list(workload.elements), trainable, world_size)


class FlatShards:
    """Stages 1 and 2: the flat buffer of all trainable parameters, in equal shards of a multiple of 2 elements.

    Source: `DeepSpeedZeroOptimizer.__init__` (alignment of 2 x N) and `average_tensor`,
    deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8.
    """

    def __init__(self, sizes: list[int], parameters: Iterable[int], world_size: int) -> None:
        self.sizes = sizes
        self.begin: dict[int, int] = {}
        total = 0
        for parameter in parameters:
            self.begin[parameter] = total
            total += sizes[parameter]
        self.elements = -(-total // (2 * world_size)) * 2 * world_size
        """Of the flat buffer, padded."""
        self.shard = self.elements // world_size
        self._known: dict[_Asked, tuple[tuple[Operation, tuple[int, ...]], ...]] = {}
        """The messages of buckets: memory and traffic ask for the same ones, in many passes."""

    def messages(self, bucket: tuple[int, ...], knobs: Knobs) -> tuple[tuple[Operation, tuple[int, ...]], ...]:
        """Returns (operation, elements of the pieces that are joined) of the messages for one bucket."""
        key = (bucket, knobs.reduce_scatter, knobs.use_multi_rank_bucket_allreduce, knobs.reduce_bucket_size)
        if key not in self._known:
            self._known[key] = tuple(self._messages(bucket, knobs))
        return self._known[key]

    def _messages(self, bucket: tuple[int, ...], knobs: Knobs) -> Iterator[tuple[Operation, tuple[int, ...]]]:
        if not knobs.reduce_scatter:
            yield "all_reduce", (sum(self.sizes[parameter] for parameter in bucket),)
            return
        slices = list(self.slices(bucket))
        if knobs.use_multi_rank_bucket_allreduce:
            for pieces in flushed_after((size for _, size in slices), knobs.reduce_bucket_size):
                yield "all_reduce", pieces
            return
        for owner in dict.fromkeys(owner for owner, _ in slices):
            own = (size for slice_owner, size in slices if slice_owner == owner)
            for pieces in flushed_after(own, knobs.reduce_bucket_size):
                yield "reduce", pieces

    def slices(self, bucket: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """Yields (owner, elements), neighbours of one owner joined."""
        last, elements = -1, 0
        for parameter in bucket:
            begin, end = self.begin[parameter], self.begin[parameter] + self.sizes[parameter]
            while begin < end:
                owner = begin // self.shard
                size = min(end, (owner + 1) * self.shard) - begin
                if owner != last and elements:
                    yield last, elements
                    elements = 0
                last, elements, begin = owner, elements + size, begin + size
        if elements:
            yield last, elements
