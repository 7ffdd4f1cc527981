"""Stops a model that never comes to an end.

An exception must not be raised just anywhere: in a callback of a dying tensor Python swallows it, and in the middle of
torch's own bookkeeping the process aborts. It is raised in a line of the model's, or where an operator is asked for.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from planner.trace.record.model_line import is_foreign

_AGAIN_S = 1.0
"""Seconds after which it is tried again, should the model catch the exception or be where it cannot be raised."""
_STANDARD = sysconfig.get_path("stdlib")

_late: set[int] = set()
"""The threads whose time is over."""


class OutOfTimeError(BaseException):
    """The limit was reached. No `except Exception` of the model's own code may catch it."""


def check_time() -> None:
    """Raises `OutOfTimeError` if the time of this thread is over; called where an operator is asked for."""
    if _late and threading.get_ident() in _late:
        _late.discard(threading.get_ident())
        raise OutOfTimeError


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `OutOfTimeError` inside after so many seconds."""
    ident = threading.get_ident()
    by = _by_signal if threading.current_thread() is threading.main_thread() else _by_another_thread
    try:
        with by(seconds):
            yield
    finally:
        _late.discard(ident)


@contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    ident = threading.get_ident()

    def stop(signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal's signature
        if _is_of_model(frame):
            raise OutOfTimeError
        _late.add(ident)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_another_thread(seconds: float) -> Iterator[None]:
    """Signals reach the main thread alone. Source: CPython, PyThreadState_SetAsyncExc."""
    ident = threading.get_ident()
    watched = ctypes.c_ulong(ident)
    lock, is_over = threading.Lock(), threading.Event()

    def stop() -> None:
        _late.add(ident)
        # What asks for no operator stays in its own lines.
        while not is_over.wait(_AGAIN_S):
            with lock:
                if not is_over.is_set() and _is_of_model(sys._current_frames().get(ident)):
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(watched, ctypes.py_object(OutOfTimeError))
            _late.add(ident)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over.set()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(watched, None)  # one that is under way ends nothing any more
        timer.cancel()
        timer.join()


def _is_of_model(frame: FrameType | None) -> bool:
    if frame is None:
        return False
    file = frame.f_code.co_filename
    return not is_foreign(file) and not file.startswith(_STANDARD)
