"""What DeepSpeed holds, on the device and on the host, where optimizer states lie in host memory.

Stages 1 and 2: a reduced gradient that touches a rank's partition goes to the host at once, so that nothing of it is
kept; each side has a buffer of the longest parameter for that. On the host lie the fp32 partition, its gradient and
the optimizer's own states, a copy of the partition in the model's precision, and where stage 2 accumulates, the sum
of the gradients so far, whole tensors. Stage 3: the host has the fp32 shards with gradients and states, and the flat
buffer of reduced gradients; with parameters offloaded too, their shards.

On a CPU the device's memory is the host's: offload moves nothing out of it, and adds the copies.

Source: `__init__`, `initialize_optimizer_states` and `copy_grads_in_partition`,
deepspeed/runtime/zero/stage_1_and_2.py; `_setup_for_real_optimizer`, `_create_fp32_partitions` and
`_create_param_groups_fp16_flat_cpu_memory`, deepspeed/runtime/zero/stage3.py, 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from costmodels.deepspeed import memory_gathered, memory_partitioned
from costmodels.deepspeed.memory_gathered import Gathered
from costmodels.deepspeed.memory_partitioned import Partitioned
from costmodels.deepspeed.memory_reduction import Kept
from costmodels.deepspeed.memory_sizes import NORM_BYTES, Sizes
from costmodels.engine import Components
from costmodels.states import FP32_BYTES, shard_elements


@dataclass(frozen=True, slots=True)
class OnHost:
    """Bytes of one rank in host memory, by purpose; pinned ones are tensors of their own."""

    states: int
    """The optimizer's own states, which torch allocates: not pinned."""
    pinned: Components
    """What DeepSpeed pins, one purpose each."""
    pinned_tensors: tuple[int, ...]
    """Bytes of each pinned tensor."""

    @property
    def num_bytes(self) -> int:
        """Host memory that is taken: torch rounds what it pins up to powers of two.

        Source: `CachingHostAllocatorImpl::allocate`, ATen/core/CachingHostAllocator.h, torch 2.13.
        """
        return self.states + sum(1 << (size - 1).bit_length() for size in self.pinned_tensors if size)

    @property
    def components(self) -> Components:
        """The same as tensors that are not pinned, as on a CPU."""
        return self.pinned + Components(optimizer_states=self.states)


@dataclass(frozen=True)
class Given(Kept):
    """Reduced gradients that go to the host as they come."""

    @cached_property
    def by_rank(self) -> tuple[int, ...]:
        """Bytes that each rank keeps on the device: none."""
        return (0,) * self.sizes.shape.world_size

    def leaving_bytes(self, bucket: Iterable[int]) -> int:
        """Bytes made of the largest piece that leaves: its norm is taken in fp64, and it goes down as fp32.

        Source: `set_norm_for_param_grad_in_gpu`, deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8.
        """
        return NORM_BYTES * max((min(self.sizes.elements[index], self.flat.shard) for index in bucket), default=0)


@dataclass(frozen=True)
class PartitionedOffload(Partitioned):
    """Stage 1 or 2 whose optimizer states lie on the host."""

    @cached_property
    def kept(self) -> Kept:
        """Nothing is kept on the device."""
        return Given(self.sizes)

    @property
    def longest_bytes(self) -> int:
        """Bytes of the buffer on each side through which gradients go down and come up."""
        return self.sizes.width_bytes * max(self.sizes.trainable, default=0)

    @cached_property
    def on_host(self) -> OnHost:
        """What the fullest rank has in host memory."""
        sizes, shard = self.sizes, self.flat.shard
        accumulates = sizes.knobs.stage == 2 and sizes.shape.num_micro_batches > 1
        sums_bytes = Kept(sizes).most_bytes if accumulates else 0
        copy_bytes = sizes.width_bytes * shard
        return OnHost(
            sizes.moments_bytes * shard,
            Components(
                optimizer_states=FP32_BYTES * shard,
                gradients=FP32_BYTES * shard + sums_bytes,
                buffers=copy_bytes + self.longest_bytes,
            ),
            (FP32_BYTES * shard, FP32_BYTES * shard, sums_bytes, copy_bytes, self.longest_bytes),
        )


def rest_partitioned(part: PartitionedOffload) -> Components:
    """Returns the bytes between two steps on the device."""
    sizes = part.sizes
    return _with_host(
        part.sizes,
        part.on_host,
        Components(parameters=sizes.width_bytes * (part.flat.elements + sum(sizes.frozen)), buffers=part.longest_bytes),
    )


def update_partitioned(part: PartitionedOffload) -> tuple[Components, ...]:
    """Returns the moments after backward on the device: the last reduction, and the all-gather."""
    sizes = part.sizes
    return (
        memory_partitioned.last_reduction(part),
        Components(buffers=sizes.gather_copies * sizes.width_bytes * part.flat.elements),
    )


def building_partitioned(part: PartitionedOffload) -> int:
    """Returns the greatest bytes on the device while the engine is made of a model that is in its precision.

    The flat buffer is filled beside the model; then a rank clones its partition, which goes to the host.
    """
    sizes = part.sizes
    flat_bytes = sizes.width_bytes * part.flat.elements
    frozen_bytes = sizes.width_bytes * sum(sizes.frozen)
    filling_bytes = sizes.width_bytes * sum(sizes.trainable) + flat_bytes
    cloning_bytes = flat_bytes + sizes.width_bytes * part.flat.shard
    if sizes.shape.device == "cpu":
        cloning_bytes += FP32_BYTES * part.flat.shard
    made_bytes = rest_partitioned(part).total_bytes - frozen_bytes
    if sizes.shape.device == "cpu":
        made_bytes -= part.on_host.states + _sums_bytes(part)
    return frozen_bytes + max(filling_bytes, cloning_bytes, made_bytes)


def _sums_bytes(part: PartitionedOffload) -> int:
    """Of what lies on the host, the sums that the first micro-batch makes."""
    return part.on_host.pinned.gradients - FP32_BYTES * part.flat.shard


@dataclass(frozen=True)
class GatheredOffload(Gathered):
    """Stage 3 whose optimizer states, and maybe parameters, lie on the host."""

    @property
    def offloads_parameters(self) -> bool:
        """Whether the shards of parameters lie on the host."""
        return self.assignment[0].offload == "all"

    @cached_property
    def on_host(self) -> OnHost:
        """What the fullest rank has in host memory."""
        sizes, shard = self.sizes, self.shard_elements
        parameters = sizes.width_bytes * (shard + sizes.shards(sizes.frozen)) if self.offloads_parameters else 0
        return OnHost(
            (FP32_BYTES + sizes.moments_bytes) * shard,
            Components(
                parameters=parameters,
                gradients=(FP32_BYTES + sizes.accumulated_bytes) * shard,
            ),
            (FP32_BYTES * shard, sizes.accumulated_bytes * shard, parameters),
        )


def rest_gathered(part: GatheredOffload) -> Components:
    """Returns the bytes between two steps on the device."""
    rest = memory_gathered.at_rest(part)
    parameters = rest.parameters
    if part.offloads_parameters:
        parameters -= part.sizes.width_bytes * (part.shard_elements + part.sizes.shards(part.sizes.frozen))
    return _with_host(part.sizes, part.on_host, replace(rest, parameters=parameters, gradients=0, optimizer_states=0))


def update_gathered(part: GatheredOffload) -> tuple[Components, ...]:
    """Returns the moments after backward on the device: the last reduction, and what leaves of it."""
    sizes = part.sizes
    last, *_ = memory_gathered.during_update(part)
    largest_shard = max((shard_elements(number, sizes.shape.world_size) for number in sizes.trainable), default=0)
    return (last, Components(optimizer_step=NORM_BYTES * largest_shard))


def building_gathered(part: GatheredOffload) -> int:
    """Returns the greatest bytes on the device while a model sharded as it is made becomes an engine.

    As without offload (`memory_gathered.building_bytes`), less what goes to the host as it is made: of parameters that
    lie there only the one that is given its weights is on the device.
    """
    sizes = part.sizes
    rest = rest_gathered(part)
    on_cpu = sizes.shape.device == "cpu"
    held_bytes = rest.total_bytes - (sizes.moments_bytes * part.shard_elements if on_cpu else 0)
    gathered_bytes = sizes.width_bytes * memory_gathered.gathered_one_by_one(part)
    cloning_bytes = rest.parameters
    if on_cpu:
        cloning_bytes += FP32_BYTES * (part.shard_elements + part.largest_group_elements)
    placing_bytes = memory_gathered.placing_bytes(part)
    if part.offloads_parameters and not on_cpu:
        placing_bytes = sizes.width_bytes * max(sizes.elements, default=0)
    return max(placing_bytes, cloning_bytes, held_bytes + gathered_bytes)


def _with_host(sizes: Sizes, on_host: OnHost, held: Components) -> Components:
    """Returns what a device holds: on a CPU also what lies on the host."""
    return held + on_host.components if sizes.shape.device == "cpu" else held
