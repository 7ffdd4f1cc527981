"""Stops a model that never comes to an end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class OutOfTimeError(BaseException):
    """The limit was reached. No `except Exception` of the model's own code may catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `OutOfTimeError` inside after so many seconds. Only the main thread can be stopped; others run on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signal_number: int, frame: Any) -> None:  # noqa: ARG001 - signal's signature
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
