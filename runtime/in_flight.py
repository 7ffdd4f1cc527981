"""What this process has begun to send and has not waited for when an optimizer step ends."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet


class Sender(Protocol):
    """Whoever leaves messages in flight from one step to the next."""

    def wait(self) -> None:
        """Returns when all that is in flight has come."""
        ...


_SENDERS: WeakSet[Sender] = WeakSet()


def note(sender: Sender) -> None:
    """Has `settle` ask a sender as long as it lives."""
    _SENDERS.add(sender)


def settle() -> None:
    """Waits for every message in flight. What is done with it when it has come is left for later."""
    for sender in list(_SENDERS):
        sender.wait()
