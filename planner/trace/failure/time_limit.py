"""Stops a model that never comes to an end."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class OutOfTimeError(BaseException):
    """The limit was reached. No `except Exception` of the model's own code may catch it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `OutOfTimeError` inside after so many seconds, at the next line of Python that runs."""
    if threading.current_thread() is threading.main_thread():
        with _by_signal(seconds):
            yield
    else:
        with _by_another_thread(seconds):
            yield


@contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    def stop(signal_number: int, frame: Any) -> None:  # noqa: ARG001 - signal's signature
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_another_thread(seconds: float) -> Iterator[None]:
    """Signals reach the main thread alone. Source: CPython, PyThreadState_SetAsyncExc."""
    watched = ctypes.c_ulong(threading.get_ident())
    lock = threading.Lock()
    is_over = False

    def stop() -> None:
        with lock:
            if not is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(watched, ctypes.py_object(OutOfTimeError))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(watched, None)  # one that is under way ends nothing any more
        timer.cancel()
