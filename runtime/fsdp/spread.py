"""Spreads updated parameters from o back to p, each block's ahead of its first forward after the update.

A block's message starts a block before its parameters are gathered, and it is over when they are: so it hides behind
the forward of the blocks before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from runtime.fsdp.groups import Groups
from runtime.fsdp.hierarchical_gather import Staged, start_all_gather
from runtime.fsdp.unit import Unit
from runtime.in_flight import note


class Spreader:
    """Brings what the optimizer wrote to the ranks that compute with it."""

    def __init__(self, groups: Groups, prefetch: int) -> None:
        """Spreads nothing before the first `update`."""
        self._groups = groups
        self._prefetch = prefetch
        self.order: tuple[Unit, ...] = ()
        """Blocks in the order of their forward."""
        self._updated: dict[Unit, Callable[[Tensor], None]] = {}
        """Blocks whose update waits, with what writes this rank's slice."""
        self._in_flight: dict[Unit, tuple[Any, Tensor]] = {}
        self._place: dict[Unit, int] = {}
        self._ahead: dict[Unit, Sequence[Unit]] = {}
        note(self)

    def learn_order(self, order: Sequence[Unit]) -> None:
        """Takes the order of the blocks in forward."""
        self.order = tuple(order)
        self._place = {unit: place for place, unit in enumerate(order)}

    def learn_ahead(self, unit: Unit, ahead: Sequence[Unit]) -> None:
        """Takes the blocks whose gathers start with the forward of one."""
        self._ahead[unit] = ahead

    @torch.no_grad()
    def update(self, updated: dict[Unit, Callable[[Tensor], None]]) -> None:
        """Takes an update of every block, and starts with those that the forward needs first.

        Args:
            updated: for each block with o > p, what writes this rank's updated slice into a tensor of its length.
        """
        self._updated = dict(updated)
        self._start_until(self._prefetch)

    @torch.no_grad()
    def before_forward(self, unit: Unit) -> None:
        """Makes the parameters of a block, and of those whose gather starts with it, those of the update."""
        if not self._updated and not self._in_flight:
            return
        for each in (unit, *self._ahead.get(unit, ())):
            self._finish(each)
        in_flight = list(self._in_flight.values())
        self._start_until(self._place.get(unit, len(self.order)) + self._prefetch + 1)
        for work, _ in in_flight:
            if isinstance(work, Staged):
                work.advance()

    @torch.no_grad()
    def wait(self) -> None:
        """Waits for what is in flight, and leaves it where it came."""
        for work, _ in self._in_flight.values():
            work.wait()

    @torch.no_grad()
    def finish(self) -> None:
        """Makes all parameters those of the update."""
        for unit in [*self._in_flight, *self._updated]:
            self._finish(unit)

    def _start_until(self, place: int) -> None:
        for unit in self.order[: place + 1]:
            self._start(unit)

    def _start(self, unit: Unit) -> None:
        write = self._updated.pop(unit, None)
        if write is None:
            return
        inner, outer = unit.strategy.param_degree, unit.strategy.optim_degree
        full = unit.shards()[0].new_empty(outer // inner, unit.layout.slice_elements)
        own = full[self._groups.rank % outer // inner]
        write(own)
        stops = self._groups.stops(inner, outer, hierarchical=unit.strategy.hierarchical)
        self._in_flight[unit] = (start_all_gather(full.view(-1), own, self._groups, stops), full)

    def _finish(self, unit: Unit) -> None:
        self._start(unit)
        if unit not in self._in_flight:
            return
        work, full = self._in_flight.pop(unit)
        work.wait()
        for shard, piece in zip(unit.shards(), unit.layout.pieces, strict=True):
            whole, rest = divmod(shard.numel(), piece.slice_elements)
            slices = full[:, piece.offset : piece.offset + piece.slice_elements]
            shard[: whole * piece.slice_elements].view(whole, -1).copy_(slices[:whole])
            if rest:
                shard[-rest:].copy_(slices[whole, :rest])


def spread_units(units: Sequence[Unit]) -> list[Unit]:
    """Returns the blocks that have something to spread."""
    return [unit for unit in units if unit.is_trained and unit.strategy.optim_degree > unit.strategy.param_degree]
