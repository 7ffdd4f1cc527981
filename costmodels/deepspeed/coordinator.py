"""DeepSpeed's stage 3 coordinator, run on numbers: one micro-batch of one rank; every rank does the same.

Source: `PartitionedParameterCoordinator`, deepspeed/runtime/zero/partitioned_param_coordinator.py, and
`invalidate_secondary_tensor`, deepspeed/runtime/zero/stage3.py, 0.19.8.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection

from costmodels.deepspeed.coordinator_state import Question, State
from costmodels.deepspeed.gathered_window import GatheredWindow
from costmodels.deepspeed.hooks import Hook
from costmodels.deepspeed.micro_batch import Gather, MicroBatch


class Coordinator:
    """A rank's coordinator from one state to the next."""

    def __init__(self, asked: Question, state: State) -> None:
        self.asked = asked
        self.hooks, self.knobs, self.num_segments = asked.hooks, asked.knobs, asked.num_segments
        self.elements, self.trainable = asked.elements, asked.trainable
        self.order, self.persistent = asked.order, asked.persistent
        self.available = set(state.available)
        self.window = GatheredWindow(asked.window_elements, self.available)
        self.with_secondary = set(state.with_secondary)
        self.inflight: dict[int, tuple[int, ...]] = dict.fromkeys(state.inflight, ())
        """Gathered and not yet asked for, each with all that its message carries."""
        self.users: defaultdict[int, set[str]] = defaultdict(set)
        for parameter, modules in state.users:
            self.users[parameter].update(modules)
        self.recorded = state.recorded
        self.released = dict(state.released)
        self.made_secondary: list[tuple[int, int]] = []
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
        for hook in self.hooks:
            if hook.segment != self.window.segment:
                self.window.enter(hook.segment)
            if hook.kind == "fetch":
                self._fetch(hook)
            else:
                self._release(hook)
        self.window.enter(self.num_segments - 1)
        self._release_leftovers()
        self.recorded = True
        return MicroBatch(tuple(self.sent), self.window.windows, with_secondary, tuple(self.made_secondary))

    def _reset(self) -> None:
        self.window.stop_arriving()
        for parameter in list(self.inflight):
            self._drop(parameter)
        self.inflight.clear()
        self.window.forget_messages()
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
        self.window.look()

    def _ask(self, hook: Hook) -> None:
        """Gathers what a module needs and is not there, and waits for all of it."""
        self._gather(hook.parameters, hook)
        self.window.look()
        asked = [(p, self.inflight[p]) for p in hook.parameters if p in self.inflight]
        for parameter in hook.parameters:
            self.users[parameter].add(hook.module)
        if hook.phase == "forward" and self.active:
            self._keep_for(next(reversed(self.active)), hook.parameters)
        for parameter, message in asked:
            self.window.wait(parameter, message)
        self.window.look()
        for parameter, message in asked:
            self._give_up(parameter, message)

    def _keep_for(self, module: str, parameters: tuple[int, ...]) -> None:
        for parameter in parameters:
            if not self.trainable[parameter]:
                self.recomputed.setdefault(module, {})[parameter] = None
                self.users[parameter].add(module)

    def _give_up(self, parameter: int, message: tuple[int, ...]) -> None:
        """The buffer of a joined message goes with the last of its parameters that is asked for.

        Source: `__inflight_param_registry`, deepspeed/runtime/zero/partitioned_param_coordinator.py, 0.19.8.
        """
        del self.inflight[parameter]
        if len(message) > 1 and not any(self.inflight.get(other) is message for other in message):
            self.window.free_buffer(message)

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
        self.available.update(wanted)
        for secondary in (True, False) if self.with_secondary else (False,):
            together = tuple(sorted([p for p in wanted if (p in self.with_secondary) == secondary]))
            if together:
                self.sent.append(Gather(together, secondary, hook.phase, hook.segment, self.step))
                for parameter in together:
                    self.inflight[parameter] = together
                self.window.begin(together)

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
        self.window.look()

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
        if parameter not in self.available or self.window.is_arriving(parameter) or self.users[parameter]:
            return
        self.available.discard(parameter)
        self.num_available -= self.elements[parameter]
        self.window.drop(parameter)
        if self.knobs.hpz_partition_size > 1 and parameter not in self.with_secondary:
            self.with_secondary.add(parameter)
            self.made_secondary.append((self.window.segment, parameter))
