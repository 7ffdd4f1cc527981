"""DeepSpeed's stage 3 coordinator, run on numbers: one micro-batch of one rank; every rank does the same.

Source: `PartitionedParameterCoordinator`, deepspeed/runtime/zero/partitioned_param_coordinator.py, and
`invalidate_secondary_tensor`, deepspeed/runtime/zero/stage3.py, 0.19.8.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from costmodels.deepspeed.fetch_order import FetchOrder
from costmodels.deepspeed.hooks import Hook
from costmodels.deepspeed.knobs import Knobs
from costmodels.deepspeed.micro_batch import Gather, MicroBatch, Windows
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


class Coordinator:
    """A rank's coordinator from one state to the next."""

    def __init__(self, asked: Question, state: State) -> None:
        self.asked = asked
        self.hooks, self.knobs, self.num_segments = asked.hooks, asked.knobs, asked.num_segments
        self.elements, self.trainable = asked.elements, asked.trainable
        self.order, self.persistent = asked.order, asked.persistent
        self.available = set(state.available)
        self.window_elements = asked.window_elements
        self.live_elements = self._sum(self.available)
        """Of what is available, without what persists; kept as it changes, since it is asked at every hook."""
        self.with_secondary = set(state.with_secondary)
        self.inflight: dict[int, tuple[int, ...]] = dict.fromkeys(state.inflight, ())
        """Gathered and not yet asked for, each with all that its message carries."""
        self.arriving: set[int] = set()
        """Of those, the ones whose message nobody has waited for."""
        self.arriving_elements = 0
        self.begun: set[int] = set()
        """Of what arrives, the parameters whose message began in the present segment."""
        self.begun_elements = 0
        self.joined_elements = 0
        """Of the buffers out of which joined parameters have been copied: the last one that is asked for frees it."""
        self.users: defaultdict[int, set[str]] = defaultdict(set)
        for parameter, modules in state.users:
            self.users[parameter].update(modules)
        self.recorded = state.recorded
        self.released = dict(state.released)
        self.made_secondary: list[tuple[int, int]] = []
        self.windows: list[int] = []
        """The fields of `Windows` for one moment after the other."""
        self.seen: tuple[int, int, int, int] | None = None
        """The fields of the last window."""
        self.segment = -1
        self.num_available = 0

    def state(self) -> State:
        """Returns what it leaves."""
        return State(
            self.recorded,
            frozenset(self.available),
            frozenset(self.with_secondary),
            frozenset((parameter, frozenset(modules)) for parameter, modules in self.users.items() if modules),
            frozenset(self.released.items()),
            tuple(self.inflight),
        )

    def micro_batch(self) -> MicroBatch:
        """Runs one micro-batch; called once."""
        self._reset()
        self.sent: list[Gather] = []
        self.made_secondary = []
        with_secondary = tuple(sorted(self.with_secondary))
        self.segment = -1
        for hook in self.hooks:
            if hook.segment != self.segment:
                self._enter(hook.segment)
            if hook.kind == "fetch":
                self._fetch(hook)
            else:
                self._release(hook)
        self._enter(self.num_segments - 1)
        self._release_leftovers()
        self.recorded = True
        windows = Windows(*np.array(self.windows, np.int64).reshape(-1, 4).T)
        return MicroBatch(tuple(self.sent), windows, with_secondary, tuple(self.made_secondary))

    def _enter(self, segment: int) -> None:
        """Goes on to `segment`; those without a hook, between the last one and this, hold what the last one left."""
        for number in range(self.segment + 1, segment):
            self.seen = (number, self.live_elements + self.joined_elements, self.arriving_elements, 0)
            self.windows += self.seen
        if segment != self.segment:
            self.segment = segment
            self.begun.clear()
            self.begun_elements = 0
            self._look()

    def _look(self) -> None:
        seen = (self.segment, self.live_elements + self.joined_elements, self.arriving_elements, self.begun_elements)
        if seen != self.seen:
            self.seen = seen
            self.windows += seen

    def _forget_messages(self) -> None:
        self.inflight.clear()
        self.arriving.clear()
        self.begun.clear()
        self.arriving_elements = self.joined_elements = self.begun_elements = 0

    def _reset(self) -> None:
        self.arriving.clear()
        for parameter in list(self.inflight):
            self._drop(parameter)
        self._forget_messages()
        self.queue = deque(self.asked.queue)
        self.fetched_for: dict[int, int] = {}
        self.step = 0
        self.num_available = 0
        self.active: dict[str, tuple[int, ...]] = {}
        """Modules between their fetch for backward and their release; a dictionary keeps the order of first fetches."""
        self.recomputed: dict[str, dict[int, None]] = {}
        """Frozen parameters that a forward within backward asked for, by the last active module: they stay for it.

        Source: `update_recompute_parameters`, deepspeed/runtime/zero/partitioned_param_coordinator.py, 0.19.8.
        """

    def _fetch(self, hook: Hook) -> None:
        if hook.phase == "backward":
            self.active[hook.module] = hook.parameters
        if hook.parameters:
            self._ask(hook)
        if self.recorded:
            if hook.parameters:
                self._advance_queue(hook.parameters)
            self._prefetch(hook)
        self.step += 1
        self._look()

    def _ask(self, hook: Hook) -> None:
        """Gathers what a module needs and is not there, and waits for all of it."""
        self._gather(hook.parameters, hook)
        self._look()
        asked = [(p, self.inflight[p]) for p in hook.parameters if p in self.inflight]
        for parameter in hook.parameters:
            self.users[parameter].add(hook.module)
        if hook.phase == "forward" and self.active:
            self._keep_for(next(reversed(self.active)), hook.parameters)
        for parameter, message in asked:
            self._wait(parameter, message)
        self._look()
        for parameter, message in asked:
            self._give_up(parameter, message)

    def _keep_for(self, module: str, parameters: tuple[int, ...]) -> None:
        for parameter in parameters:
            if not self.trainable[parameter]:
                self.recomputed.setdefault(module, {})[parameter] = None
                self.users[parameter].add(module)

    def _wait(self, parameter: int, message: tuple[int, ...]) -> None:
        """All parameters of a message are there once one is waited for; joined ones as copies beside the buffer."""
        if parameter not in self.arriving:
            return
        self.arriving.difference_update(message)
        if parameter in self.begun:
            self.begun.difference_update(message)
            self.begun_elements -= self._sum(message)
        self.arriving_elements -= self._sum(message)
        if len(message) > 1:
            self.joined_elements += self._sum(message)

    def _give_up(self, parameter: int, message: tuple[int, ...]) -> None:
        """The buffer of a joined message goes with the last of its parameters that is asked for.

        Source: `__inflight_param_registry`, deepspeed/runtime/zero/partitioned_param_coordinator.py, 0.19.8.
        """
        del self.inflight[parameter]
        if len(message) > 1 and not any(self.inflight.get(other) is message for other in message):
            self.joined_elements -= self._sum(message)

    def _sum(self, parameters: Iterable[int]) -> int:
        return sum([self.window_elements[parameter] for parameter in parameters])

    def _advance_queue(self, parameters: tuple[int, ...]) -> None:
        missing = {p for p in parameters if self.fetched_for.get(p, -1) < self.step}
        while self.queue and missing:
            parameter, step = self.queue.popleft()
            self.fetched_for[parameter] = step
            missing.discard(parameter)

    def _prefetch(self, hook: Hook) -> None:
        limit = min(self.knobs.max_live_parameters - self.num_available, self.knobs.prefetch_bucket_size)
        ahead: dict[int, None] = {}
        elements = 0
        while self.queue and elements < limit:
            parameter, step = self.queue.popleft()
            self.fetched_for[parameter] = max(self.fetched_for.get(parameter, -1), step)
            if parameter not in self.available and parameter not in ahead:
                ahead[parameter] = None
                elements += self.elements[parameter]
        if ahead:
            self._gather(tuple(ahead), hook)

    def _gather(self, parameters: tuple[int, ...], hook: Hook) -> None:
        wanted = [parameter for parameter in parameters if parameter not in self.available]
        if not wanted:
            return
        self.num_available += sum([self.elements[parameter] for parameter in wanted])
        self.live_elements += self._sum(wanted)
        self.available.update(wanted)
        for secondary in (True, False) if self.with_secondary else (False,):
            together = tuple(sorted([p for p in wanted if (p in self.with_secondary) == secondary]))
            if together:
                self.sent.append(Gather(together, secondary, hook.phase, hook.segment, self.step))
                for parameter in together:
                    self.inflight[parameter] = together
                self.arriving.update(together)
                self.begun.update(together)
                joined_elements = self._sum(together)
                self.begun_elements += joined_elements
                self.arriving_elements += joined_elements

    def _release(self, hook: Hook) -> None:
        is_backward = hook.phase == "backward"
        if is_backward:
            self.active.pop(hook.module, None)
        if hook.parameters:
            may_go = self._may_go(hook)
            for parameter in hook.parameters:
                self.users[parameter].discard(hook.module)
                if parameter in may_go:
                    self._drop(parameter)
        if is_backward and hook.module in self.recomputed:
            self._let_go(hook.module, tuple(self.recomputed.pop(hook.module)))
        self._look()

    def _may_go(self, hook: Hook) -> Collection[int]:
        if not self.recorded:
            return hook.parameters
        key = (hook.module, self.step)
        if key not in self.released:
            self.released[key] = self._releasable(hook)
        return self.released[key]

    def _releasable(self, hook: Hook) -> frozenset[int]:
        order = self.order.of_leaf if hook.is_leaf else self.order.of_module
        return frozenset(
            parameter
            for parameter in hook.parameters
            if parameter not in self.persistent
            and self.fetched_for.get(parameter, -1) <= self.step
            and not order.is_reused(parameter, self.step, self.knobs.max_reuse_distance)
        )

    def _release_leftovers(self) -> None:
        """Modules whose inputs need no gradients have no hook after backward."""
        while self.active:
            module, parameters = self.active.popitem()
            self._let_go(module, (*parameters, *self.recomputed.pop(module, ())))

    def _let_go(self, module: str, parameters: tuple[int, ...]) -> None:
        for parameter in parameters:
            self.users[parameter].discard(module)
            if parameter not in self.persistent:
                self._drop(parameter)

    def _drop(self, parameter: int) -> None:
        if parameter not in self.available or parameter in self.arriving or self.users[parameter]:
            return
        self.available.discard(parameter)
        self.num_available -= self.elements[parameter]
        self.live_elements -= self.window_elements[parameter]
        if self.knobs.hpz_partition_size > 1 and parameter not in self.with_secondary:
            self.with_secondary.add(parameter)
            self.made_secondary.append((self.segment, parameter))
