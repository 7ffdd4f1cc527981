"""Finds out which ranks are still there when one has failed or a message does not come.

Each rank's thread looks every half second whether the roll is called and answers, whatever its main thread waits for;
only a rank that is dead or stopped gives no answer. The answers lie in the store that all ranks started with.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from hw_profiles.measure.ending import FAILED, Answer, Ending, ending
from hw_profiles.measure.host_facts import is_stopped

_POLL_S = 0.5
_WINDOW_S = 5.0
"""How long a rank has to answer: ten looks of its thread."""


class RollCall:
    """One rank's part of it: answers from a thread, and asks all others from the main thread."""

    def __init__(self, connect: Callable[[], Store], rank: int, world_size: int, keeps_store: bool) -> None:
        self._store = connect()
        self._own_store = connect()
        self._rank, self._world_size, self._keeps_store = rank, world_size, keeps_store
        self._parent = os.getppid()
        self._step, self._doing = 0, ""
        self._last = time.monotonic()
        self._hung: tuple[float, Callable[[str], None]] | None = None
        self._lock = threading.Lock()
        self._answered = False
        self._answered_s = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="roll-call")
        self._thread.start()

    def step(self, doing: str | None = None) -> None:
        """Notes that this rank begins its next step: all ranks take the same."""
        self._step += 1
        self._last = time.monotonic()
        if doing is not None:
            self._doing = doing

    @property
    def is_called(self) -> bool:
        """Whether some rank has called the roll."""
        return self._answered

    def touch(self) -> None:
        """Notes that this rank is waiting on purpose."""
        self._last = time.monotonic()

    def close(self) -> None:
        """Ends the thread: this rank answers no more."""
        self._closed.set()
        self._thread.join()

    def when_hung(self, after_s: float, then: Callable[[str], None]) -> None:
        """Has the thread call `then` with the reason, "" if others know it, when the main thread waits without end.

        That is when no step was begun for `after_s`, or when others have called the roll and it does not come to it.
        """
        self._hung = (after_s, then)

    def call(self, failure: str = "", *, is_usage: bool = False, lost: str = "") -> tuple[Ending, bool]:
        """Calls the roll and returns how it ended, and whether this rank is the one to tell the user.

        Args:
            failure: this rank's own error, if it has one.
            is_usage: whether that error is the user's to mend.
            lost: what this rank saw of others' failure.
        """
        found: list[tuple[Ending, bool]] = []

        def ask() -> None:
            try:
                self._answer(self._own_store, failure, is_usage, lost)
                found.append(self._outcome())
            except (RuntimeError, OSError):
                pass  # the store itself is gone

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(2 * _WINDOW_S)
        return found[0] if found else self._without_store(failure, is_usage, lost)

    def _outcome(self) -> tuple[Ending, bool]:
        self._own_store.set("alarm", "")
        until = time.monotonic() + _WINDOW_S
        while self._own_store.add("answers", 0) < self._world_size and time.monotonic() < until:
            time.sleep(0.05)
        answers = {}
        for rank in range(self._world_size):
            if self._own_store.check([f"answer/{rank}"]):
                answers[rank] = Answer.model_validate_json(self._own_store.get(f"answer/{rank}"))
        self._leave(len(answers))
        return ending(answers, self._world_size), self._rank == min(answers)

    def _leave(self, num_present: int) -> None:
        """Lets the rank that keeps the store wait until the others have read it."""
        self._own_store.add("left", 1)
        until = time.monotonic() + _WINDOW_S / 2
        while self._keeps_store and self._own_store.add("left", 0) < num_present and time.monotonic() < until:
            time.sleep(0.05)

    def _without_store(self, failure: str, is_usage: bool, lost: str) -> tuple[Ending, bool]:
        if failure and is_usage:
            return Ending(failure, 2, (self._rank,)), True
        if failure:
            return Ending(f"rank {self._rank} failed: {failure}", FAILED, (self._rank,)), True
        doing = f" while measuring {self._doing}" if self._doing else ""
        text = f"rank 0, or the launcher that keeps the ranks' store, does not answer any more{doing}: {lost}"
        # Nobody else can be asked who tells. Where the roll was called before, one of those who called it has told;
        # else the second rank does, as rank 0 is the likeliest to be gone.
        return Ending(text, FAILED, (0,)), self._rank == min(1, self._world_size - 1) and not self._answered

    def _answer(self, store: Store, failure: str = "", is_usage: bool = False, lost: str = "") -> None:
        with self._lock:
            if self._answered and not (failure or lost):
                return
            answer = Answer(step=self._step, doing=self._doing, failure=failure, is_usage=is_usage, lost=lost)
            store.set(f"answer/{self._rank}", answer.model_dump_json())
            if not self._answered:
                store.add("answers", 1)
                self._answered_s = time.monotonic()
            self._answered = True

    def _watch(self) -> None:
        while not self._closed.wait(_POLL_S):
            self._follow_parent()
            self._look_for_hang()
            if self._answered:
                continue
            try:
                if self._store.check(["alarm"]):
                    self._answer(self._store)
            except (RuntimeError, OSError):
                continue  # the main thread finds out by itself

    def _look_for_hang(self) -> None:
        if self._hung is None:
            return
        most_s, then = self._hung
        now = time.monotonic()
        if self._answered and now - self._answered_s > 3 * _WINDOW_S:
            then("")  # all others have ended, and this main thread still waits for them
        elif now - self._last > most_s:
            then(f"nothing moved for {most_s:.0f} s")

    def _follow_parent(self) -> None:
        """Ends with the process that started this one, and stops where that is stopped: the two are one rank."""
        if os.getppid() != self._parent:
            os._exit(FAILED)
        if is_stopped(self._parent):
            os.kill(os.getpid(), signal.SIGSTOP)


def store_at(host: str, port: int, prefix: str, *, keeps: bool, timeout_s: float) -> Store:
    """Returns a connection to the ranks' store; with `keeps`, this process holds it."""
    store = TCPStore(host, port, None, keeps, timedelta(seconds=timeout_s), wait_for_workers=False, multi_tenant=keeps)
    return PrefixStore(prefix, store)
