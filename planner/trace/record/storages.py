"""Follows the memory of tensors: when each storage comes to life and when it dies."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from planner.trace.record.recording import UNTRACKED, MemoryEvent


class Storages:
    """The births and deaths so far."""

    def __init__(self) -> None:
        self.events: list[MemoryEvent] = []
        self.num_operators = 0
        """Operators that have run: the time of an event."""
        self._index_of: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[Any]] = {}

    @property
    def last_operator(self) -> int:
        """The operator that was the last to run."""
        return max(self.num_operators - 1, 0)

    def ignore(self, tensor: torch.Tensor) -> None:
        """Does not follow the tensor's storage: it was there before the step."""
        self._index_of[tensor.untyped_storage()._cdata] = UNTRACKED

    def index(self, tensor: torch.Tensor) -> int:
        """Returns the index of the tensor's storage; UNTRACKED where it is not followed."""
        return self._index_of.get(tensor.untyped_storage()._cdata, UNTRACKED)

    def follow(self, tensor: torch.Tensor) -> int:
        """Returns the index of the tensor's storage; a new one is watched until it dies."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._index_of.get(address)
        if known is not None:
            return known
        index = self._index_of[address] = len(self._watches)
        num_bytes = storage.nbytes()
        self.events.append(MemoryEvent(self.num_operators, index, num_bytes))

        def died(_: weakref.ref[Any]) -> None:
            del self._index_of[address]
            self.events.append(MemoryEvent(self.last_operator, index, -num_bytes))

        self._watches[index] = weakref.ref(storage, died)
        return index

    def end(self) -> None:
        """Watches no longer."""
        self._watches.clear()
