"""What DeepSpeed's stage 3 coordinator is asked, and what one micro-batch leaves to the next one.

Source: `PartitionedParameterCoordinator`, deepspeed/runtime/zero/partitioned_param_coordinator.py, and
`invalidate_secondary_tensor`, deepspeed/runtime/zero/stage3.py, 0.19.8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from costmodels.deepspeed.fetch_order import FetchOrder
from costmodels.deepspeed.hooks import Hook
from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.micro_batch import MicroBatch
from costmodels.workload import Workload


def persistent_parameters(workload: Workload, knobs: Knobs) -> tuple[int, ...]:
    """Returns the parameters that stay gathered: the small ones, as far as the model's limit goes.

    Source: `mark_persistent_parameters`, deepspeed/runtime/zero/parameter_offload.py, 0.19.8.
    """
    return _persistent(workload, knobs.param_persistence_threshold, knobs.model_persistence_threshold)


@lru_cache(maxsize=32)
def _persistent(workload: Workload, threshold: int, limit: int) -> tuple[int, ...]:
    found, total = [], 0
    for index, elements in enumerate(workload.elements):
        if elements <= threshold and elements + total <= limit:
            found.append(index)
            total += elements
    return tuple(found)


class State(NamedTuple):
    """What one micro-batch leaves to the next one; equal states go on equally."""

    recorded: bool
    """The order of modules is known."""
    available: frozenset[int]
    """Parameters that are gathered, those that persist included."""
    with_secondary: frozenset[int]
    users: frozenset[tuple[int, frozenset[str]]]
    """Modules that still use a parameter."""
    released: frozenset[tuple[tuple[str, int], frozenset[int]]]
    """DeepSpeed caches what a module may release at a step, the first time it asks."""
    inflight: tuple[int, ...] = ()
    """Parameters that were fetched ahead, and not asked for."""


@dataclass(frozen=True, eq=False)
class Question:
    """All that a coordinator does not change; it stands for itself as a key."""

    hooks: tuple[Hook, ...]
    knobs: Knobs
    num_segments: int
    elements: list[int]
    trainable: list[bool]
    order: FetchOrder
    persistent: frozenset[int]
    known: dict[State, tuple[MicroBatch, State]] = field(default_factory=dict)
    """The micro-batches that begin in a state, and the states that they leave, as they are found."""

    @property
    def recorded(self) -> State:
        """The state after a first step of one micro-batch, which records the order and leaves nothing else.

        Only secondary shards of frozen parameters outlast a step: where there may be any, the state before it.
        """
        if self.knobs.hpz_partition_size > 1 and not all(self.trainable):
            return self.first
        return self.first._replace(recorded=True)

    @property
    def first(self) -> State:
        """The state before the first step."""
        return State(False, self.persistent, frozenset(), frozenset(), frozenset())

    @cached_property
    def window_elements(self) -> list[int]:
        """Elements of each parameter as windows count them: none of those that persist."""
        return [0 if index in self.persistent else number for index, number in enumerate(self.elements)]

    @cached_property
    def queue(self) -> tuple[tuple[int, int], ...]:
        """Every (parameter, number of the fetch that asks for it), in order."""
        return tuple((parameter, step) for step, asked in enumerate(self.order.fetches) for parameter in asked)

    def updated(self, state: State) -> State:
        """Returns the state after the optimizer step.

        It partitions everything, gathers what persists, and lets the secondary shards of what is trained expire.
        """
        there = state.with_secondary | (state.available if self.knobs.hpz_partition_size > 1 else frozenset())
        frozen = frozenset(parameter for parameter in there if not self.trainable[parameter])
        return State(state.recorded, self.persistent, frozen, frozenset(), state.released)


def question(workload: Workload, order: tuple[Hook, ...], knobs: Knobs) -> Question:
    """Returns the question that a workload asks of a coordinator under some settings."""
    elements = list(workload.elements)
    return Question(
        hooks=order,
        knobs=knobs,
        num_segments=len(workload.segments),
        elements=elements,
        trainable=[parameter.trainable for parameter in workload.parameters],
        order=FetchOrder(workload, order, elements),
        persistent=frozenset(persistent_parameters(workload, knobs)),
    )
