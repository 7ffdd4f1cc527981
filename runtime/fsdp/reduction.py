"""Reduces gradients beside the backward that makes them: to g after every micro-batch, to o and over N after the last.

A block's gradients are copied into one message as its backward ends. Each end of a block's backward takes the messages
in flight one step further: a reduction over g that is over is added up and goes on from g to o, and what has come to o
goes on to N. So every message has at least one block's backward to hide behind, and all ranks send in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable

from runtime.fsdp.groups import Groups
from runtime.fsdp.unit import Unit

_OVER = object()


class Reducer:
    """Follows the gradients of all blocks through the micro-batches of a step."""

    def __init__(self, units: Sequence[Unit], groups: Groups, num_micro_batches: int) -> None:
        """Hooks the parameters of blocks that are not sharded; `watch` does it for the others, once they exist."""
        self._units = [unit for unit in units if unit.is_trained]
        self._groups = groups
        self._num_micro_batches = num_micro_batches
        self.micro_batch = 0
        """Micro-batches of this step whose backward is over."""
        self._missing: dict[Unit, set[int]] = {}
        self._in_flight: list[Iterator[None]] = []
        self._is_in_backward = False
        self._watched: set[Unit] = set()
        for unit in self._units:
            if unit.group is None:
                self.watch(unit)
            else:
                _after(unit.group, partial(self._block_ended, unit))

    @property
    def is_reduced(self) -> bool:
        """Whether every gradient of the step has come to its slice."""
        return self.micro_batch > 0 and all(unit.slice is not None for unit in self._units)

    def watch(self, unit: Unit) -> None:
        """Hooks the leaves of a block; call it when they exist, before the first backward."""
        if unit in self._watched:
            return
        self._watched.add(unit)
        if not unit.reduces_at_once:
            unit.accumulate_in_place()
        for number, leaf in enumerate(unit.leaves()):
            leaf.register_post_accumulate_grad_hook(self._gradient_hook(unit, number))  # type: ignore[no-untyped-call]

    def watch_all(self) -> None:
        """Hooks what is left."""
        for unit in self._units:
            self.watch(unit)

    def finish_step(self) -> None:
        """Runs what the boundary has left: after fewer micro-batches than were planned, all of it."""
        for unit in self._units:
            if unit.slice is None:
                self._start(self._to_slice(unit))
        self._drain()

    def next_step(self) -> None:
        """Begins a step: nothing is accumulated any more."""
        self.micro_batch = 0
        for unit in self._units:
            unit.num_reductions = 0
            unit.slice = None
            if not unit.reduces_at_once:
                assert unit.accumulated is not None
                unit.accumulated.zero_()

    def _gradient_hook(self, unit: Unit, number: int) -> Callable[[Tensor], None]:
        def came(_: Tensor) -> None:
            self._begin_backward()
            missing = self._missing[unit]
            missing.discard(number)
            if not missing and unit.group is None:
                self._block_ended(unit)

        return came

    def _begin_backward(self) -> None:
        if not self._is_in_backward:
            if self.micro_batch == self._num_micro_batches:
                raise RuntimeError(
                    f"a backward beyond the {self._num_micro_batches} micro-batches of a step: call optimizer.step() "
                    "after each of these, or plan for more"
                )
            self._is_in_backward = True
            self._missing = {unit: set(range(len(unit.names))) for unit in self._units}
            Variable._execution_engine.queue_callback(self._end_backward)

    def _block_ended(self, unit: Unit) -> None:
        """Reduces a block when the last of its gradients has come; earlier calls are of modules that run twice."""
        if self._is_in_backward and unit in self._missing and not self._missing[unit]:
            self._reduce(unit)

    def _end_backward(self) -> None:
        for unit in reversed(self._units):
            if unit in self._missing:
                self._reduce(unit)
        self._drain()
        self._is_in_backward = False
        self.micro_batch += 1

    def _reduce(self, unit: Unit) -> None:
        del self._missing[unit]
        is_last = self.micro_batch == self._num_micro_batches - 1
        if unit.reduces_at_once or is_last:
            self._start(self._through(unit, is_last))

    def _start(self, reduction: Iterator[None]) -> None:
        self._advance()
        if next(reduction, _OVER) is not _OVER:
            self._in_flight.append(reduction)

    def _advance(self) -> None:
        """Takes each message in flight one step further, the oldest first."""
        self._in_flight = [each for each in self._in_flight if next(each, _OVER) is not _OVER]

    def _drain(self) -> None:
        while self._in_flight:
            self._advance()

    def _through(self, unit: Unit, is_last: bool) -> Iterator[None]:
        if unit.reduces_at_once:
            yield from self._to_shard(unit)
        if is_last:
            yield from self._to_slice(unit)

    def _to_shard(self, unit: Unit) -> Iterator[None]:
        """Reduces the gradients of a micro-batch over g, and adds them up."""
        assert unit.accumulated is not None
        full = _filled(unit, unit.take_gradients())
        is_first = unit.num_reductions == 0
        shard = unit.accumulated if is_first else torch.empty_like(unit.accumulated)
        unit.num_reductions += 1
        degree = unit.strategy.grad_degree
        work = dist.reduce_scatter_single(shard, full, group=self._groups.between(1, degree, "reduce"), async_op=True)
        yield
        _wait(work)
        del full
        if not is_first:
            unit.accumulated += shard

    def _to_slice(self, unit: Unit) -> Iterator[None]:
        """Reduces what all micro-batches gave from g to o, and over the ranks that hold the same slice."""
        assert unit.accumulated is not None
        grad_degree, optim_degree = unit.strategy.grad_degree, unit.strategy.optim_degree
        own = unit.accumulated
        if optim_degree > grad_degree:
            group = self._groups.between(grad_degree, optim_degree, "reduce")
            elements = unit.layout.slice_elements
            if unit.reduces_at_once:
                shard, own = own, own.view(-1, elements)[group.rank()]
            else:
                shard, own = _filled(unit, unit.take_gradients()), own[:elements]
            work = dist.reduce_scatter_single(own, shard, group=group, async_op=True)
            yield
            _wait(work)
            del shard
        if self._groups.world_size > optim_degree:
            group = self._groups.between(optim_degree, self._groups.world_size, "reduce")
            work = dist.all_reduce(own, group=group, async_op=True)
            yield
            _wait(work)
        unit.slice = own


def _filled(unit: Unit, gradients: list[Tensor | None]) -> Tensor:
    assert unit.accumulated is not None
    full = unit.accumulated.new_empty(unit.layout.full_elements)
    unit.layout.fill(full, gradients)
    return full


def _wait(work: Any) -> None:
    """Waits for a message: on CUDA the stream does, not the host."""
    if work is not None:
        work.wait()


def _after(group: Any, ended: Callable[[], None]) -> None:
    """Calls `ended` after FSDP2's own end of a block's backward, when the parameters are sharded again.

    Source: PyTorch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, `post_backward`: it is called by the
    autograd function at the block's inputs and by the end of backward; with `reduce_grads` false it leaves gradients
    where autograd put them.
    """
    original = group.post_backward

    def post_backward(*unused: Any) -> None:
        original(*unused)
        ended()

    group.post_backward = post_backward
