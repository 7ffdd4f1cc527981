"""Reduces gradients beside the backward that makes them: to g after every micro-batch, to o and over N after the last.

A block's gradients are copied into one message as its backward ends. Each end of a block's backward takes the messages
in flight one step further: a reduction over g that is over is added up and goes on from g to o, and what has come to o
goes on to N. So every message has at least one block's backward to hide behind.

All ranks must start their messages in the same order, also where a rank's batch leaves parameters without gradients
(experts without tokens, say). So blocks are reduced in one order, the reverse of the first forward on rank 0, and a
block that ends early waits for those before it. One of which some gradients have come counts as ended with the next
that ends: autograd runs what was computed later first, so that no others can come.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from torch import Tensor
from torch._C import _current_graph_task_id
from torch.autograd import Variable

from runtime.fsdp.gather import after_backward
from runtime.fsdp.groups import Groups
from runtime.fsdp.reduction import reduction, to_slice
from runtime.fsdp.unit import Unit
from runtime.ranks import LaunchError

_OVER = object()


class Reducer:
    """Follows the gradients of all blocks through the micro-batches of a step."""

    def __init__(self, units: Sequence[Unit], groups: Groups, num_micro_batches: int) -> None:
        """Hooks the parameters of blocks that are not sharded; `watch` does it for the others, once they exist."""
        self._all_units = tuple(units)
        self._units = [unit for unit in units if unit.is_trained]
        self._groups = groups
        self._num_micro_batches = num_micro_batches
        self.micro_batch = 0
        """Micro-batches of this step whose backward is over."""
        self._order: list[Unit] = list(reversed(self._units))
        self._is_agreed = False
        self._next = 0
        """Place in the order of the block that is reduced next."""
        self._missing: dict[Unit, set[int]] = {}
        """Parameters whose gradients have not come in this backward."""
        self._ended: dict[Unit, None] = {}
        self._in_flight: list[Iterator[None]] = []
        self._is_in_backward = False
        self._watched: dict[Unit, None] = {}
        for unit in self._units:
            if unit.group is None:
                self.watch(unit)
            else:
                after_backward(unit.group, partial(self._block_ended, unit))

    @property
    def has_begun(self) -> bool:
        """Whether the step has had a backward, or the beginning of one."""
        return self._is_in_backward or self.micro_batch > 0

    def watch(self, unit: Unit) -> None:
        """Hooks the leaves of a block; call it when they exist, before the first backward."""
        if unit in self._watched or not unit.is_trained:
            return
        self._watched.setdefault(unit)
        for number, leaf in enumerate(unit.leaves()):
            assert leaf is not None
            if not unit.reduces_at_once:
                unit.accumulate_in_place(leaf, number)
            leaf.register_post_accumulate_grad_hook(self._gradient_hook(unit, number))  # type: ignore[no-untyped-call]

    def learn_order(self, ran: Sequence[Unit]) -> None:
        """Takes the order of the first forward; blocks that it left out are reduced last."""
        place = {unit: number for number, unit in enumerate(ran)}
        self._order.sort(key=lambda unit: -place.get(unit, -1))

    def check(self) -> None:
        """Refuses to go on after a backward that failed.

        Raises:
            LaunchError: A backward has not ended, and none runs.
        """
        if self._is_in_backward and _current_graph_task_id() == -1:
            raise LaunchError(
                "the last backward failed, and gradients of its step are incomplete: give the step up with "
                "optimizer.zero_grad() on every rank before going on"
            )

    def check_room(self) -> None:
        """Refuses a backward beyond those of a step.

        Raises:
            LaunchError: All micro-batches of the step have had theirs.
        """
        if self.micro_batch == self._num_micro_batches:
            raise LaunchError(
                f"a backward beyond the {self._num_micro_batches} micro-batches of a step: call optimizer.step() "
                "after each of these, or plan for more; optimizer.zero_grad() gives this step up"
            )

    def finish_step(self) -> None:
        """Runs what the boundary has left: after fewer micro-batches than were planned, all of it."""
        for unit in self._order:
            if unit.slice is None:
                self._start(to_slice(unit, self._groups))
        self._drain()

    def next_step(self) -> None:
        """Begins a step: nothing is accumulated any more."""
        self.micro_batch = 0
        for unit in self._units:
            unit.forget_gradients()

    def give_up(self) -> None:
        """Drops the gradients of a step; every rank must do so at the same place in it."""
        self._drain()
        self._is_in_backward = False
        self.next_step()

    def _gradient_hook(self, unit: Unit, number: int) -> Callable[[Tensor], None]:
        # A tensor's hooks are out of sight of Python's collector: what they hold, and that holds the tensor, stays.
        reducer, block = weakref.ref(self), weakref.ref(unit)

        def came(leaf: Tensor) -> None:
            live_reducer, live_block = reducer(), block()
            if live_reducer is not None and live_block is not None:
                live_reducer._gradient_came(live_block, number, leaf)

        return came

    def _gradient_came(self, unit: Unit, number: int, leaf: Tensor) -> None:
        self._begin_backward()
        missing = self._missing.get(unit)
        if missing is None:
            raise LaunchError(
                f"a gradient of {unit.names[number]} came after its block {unit.name!r} was reduced: it is used in "
                "an order that backward cannot follow; plan what uses it as one block with it"
            )
        missing.discard(number)
        if not unit.reduces_at_once and not unit.is_in_place(leaf):
            unit.accumulate_in_place(leaf, number)
        if not missing and unit.group is None:
            self._block_ended(unit)

    def _begin_backward(self) -> None:
        if not self._is_in_backward:
            self.check_room()
            self._is_in_backward = True
            self._missing = {unit: set(range(len(unit.names))) for unit in self._units}
            self._ended = {}
            self._next = 0
            self._agree_on_order()
            Variable._execution_engine.queue_callback(self._end_backward)

    def _agree_on_order(self) -> None:
        """Takes rank 0's order."""
        if not self._is_agreed:
            self._is_agreed = True
            numbers = self._groups.agree([self._units.index(unit) for unit in self._order])
            self._order = [self._units[number] for number in numbers]

    def _block_ended(self, unit: Unit) -> None:
        """Reduces a block when the last of its gradients has come; earlier calls are of modules that run twice."""
        if not self._is_in_backward or not unit.is_trained or self._missing.get(unit, True):
            return
        self._ended.setdefault(unit)
        last = max(place for place in range(len(self._order)) if self._order[place] in self._ended)
        while self._next <= last and self._is_over(self._order[self._next]):
            self._reduce(self._order[self._next])

    def _is_over(self, unit: Unit) -> bool:
        return unit in self._ended or len(self._missing[unit]) < len(unit.names)

    def _end_backward(self) -> None:
        while self._next < len(self._order):
            self._reduce(self._order[self._next])
        self._drain()
        for unit in self._all_units:
            if unit.is_held:
                unit.shard_again()
        self._is_in_backward = False
        self.micro_batch += 1

    def _reduce(self, unit: Unit) -> None:
        self._next += 1
        del self._missing[unit]
        is_last = self.micro_batch == self._num_micro_batches - 1
        if unit.reduces_at_once or is_last:
            self._start(reduction(unit, self._groups, is_last))
        else:
            self._advance()

    def _start(self, started: Iterator[None]) -> None:
        self._advance()
        if next(started, _OVER) is not _OVER:
            self._in_flight.append(started)

    def _advance(self) -> None:
        """Takes each message in flight one step further, the oldest first."""
        self._in_flight = [each for each in self._in_flight if next(each, _OVER) is not _OVER]

    def _drain(self) -> None:
        while self._in_flight:
            self._advance()
