"""A sharded model while it trains: what its blocks do before and after their forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from runtime.fsdp.borrow import Borrowing, gather_held, hold, reshard_held
from runtime.fsdp.groups import Groups
from runtime.fsdp.look_ahead import LookAhead, before_backward, differentiated
from runtime.fsdp.reducer import Reducer
from runtime.fsdp.spread import Spreader
from runtime.fsdp.strategies import ShardingPlan
from runtime.fsdp.unit import Unit


class Sharded:
    """What `shard` made of a model: its blocks, and what moves their gradients and parameters."""

    def __init__(self, model: nn.Module, plan: ShardingPlan, units: Sequence[Unit], groups: Groups) -> None:
        """Joins the blocks; `shard` calls it."""
        self.model = model
        self.plan = plan
        self.units = tuple(units)
        self.groups = groups
        self.reducer = Reducer(units, groups, plan.num_micro_batches)
        self.spreader = Spreader(groups, plan.prefetch)
        self._ran: dict[Unit, None] = {}
        """Blocks by their first use in the first forward."""
        self._ran_last: dict[Unit, None] = {}
        """By their last."""
        self._differentiated: dict[Unit, None] = {}
        """Those through which gradients flow."""
        self._look_ahead = LookAhead()
        for unit in units:
            for module in unit.modules:
                module.register_forward_pre_hook(self._before(unit), prepend=True)
                module.register_forward_hook(self._after(unit))
        self._borrowing: Borrowing | None = Borrowing(units, self._borrow)
        """None once the first forward is over."""
        self._is_looking = False
        model.register_forward_pre_hook(self._begin_forward, prepend=True)
        model.register_forward_hook(self._end_forward, always_call=True)
        model.register_forward_hook(self._after_forward)
        model.register_state_dict_pre_hook(lambda *_: self.synchronize())  # type: ignore[no-untyped-call]
        model.register_load_state_dict_pre_hook(lambda *_: self.synchronize())  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        """Makes the parameters on every rank those of the last update, where the next forward has not done so yet."""
        self.spreader.finish()

    def shard_again(self) -> None:
        """Drops all that is gathered: what comes next is gathered anew."""
        for unit in self.units:
            unit.shard_again()

    def give_up_step(self) -> None:
        """Drops the gradients of an unfinished step, also after a forward or a backward that failed.

        Every rank must call it at the same place in the step: messages in flight come to their end first.
        """
        self.reducer.give_up()
        if isinstance(self.model, FSDPModule):
            self.model._get_fsdp_state()._reset_iter_state()

    def _before(self, unit: Unit) -> Callable[..., None]:
        def before(*_: Any) -> None:
            self.reducer.check()
            self._ran.setdefault(unit)
            self._ran_last.pop(unit, None)
            self._ran_last[unit] = None
            self.spreader.before_forward(unit)
            self._look_ahead.before_forward(unit)

        return before

    def _after(self, unit: Unit) -> Callable[..., None]:
        def after(*given: Any) -> None:
            if unit.is_ready:
                self.reducer.watch(unit)
            if given and differentiated(given[-1]):
                self._differentiated.setdefault(unit)
                self._look_ahead.after_forward(unit, given[-1])

        return after

    def _begin_forward(self, *_: Any) -> None:
        for unit in self.units:
            if unit.is_held:
                self._before(unit)()
                gather_held(unit, "forward")
                self._after(unit)()
        if self._borrowing is not None and not self._is_looking:
            self._borrowing.__enter__()  # type: ignore[no-untyped-call]
            self._is_looking = True

    def _end_forward(self, *given: Any) -> None:
        """Runs also where the forward failed."""
        if self._is_looking:
            assert self._borrowing is not None
            self._borrowing.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._is_looking = False
        held = [unit for unit in self.units if unit.is_held]
        if not torch.is_grad_enabled():
            for unit in held:
                unit.shard_again()
        elif held and differentiated(given[-1]):
            for unit in held:
                reshard_held(unit)
            before_backward(given[-1], partial(_gather_for_backward, held))

    def _borrow(self, unit: Unit) -> None:
        """Has a block's parameters used outside of its forward."""
        if unit.is_held or (unit.group is None and unit in self._ran):
            return
        self._before(unit)()
        hold(unit)
        gather_held(unit, "forward")
        self._after(unit)()

    def _after_forward(self, *_: Any) -> None:
        """Once the order of the blocks is known, has each gather those after it ahead."""
        if self._borrowing is None:
            return
        self._borrowing = None
        self.spreader.learn_order([*self._ran, *(unit for unit in self.units if unit not in self._ran)])
        self.reducer.learn_order(list(self._ran))
        backward = [unit for unit in reversed(self._ran_last) if unit in self._differentiated]
        for unit, ahead in self._look_ahead.learn(list(self._ran), backward, self.plan.prefetch).items():
            self.spreader.learn_ahead(unit, ahead)


def _gather_for_backward(held: Sequence[Unit]) -> None:
    for unit in held:
        gather_held(unit, "backward")
