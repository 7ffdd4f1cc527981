"""Counts the bytes of a real step as the CPU's allocator hands them out: what no operator shows is in here too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

_MARKER_BYTES = 12345
"""An allocation of a size that nothing else has tells where forward ends."""


@dataclass(slots=True)
class Allocations:
    """Filled when the measurement ends."""

    saved_bytes: int = 0
    peak_bytes: int = 0
    mark: Callable[[], None] = field(default=lambda: None)


@contextmanager
def allocations() -> Iterator[Allocations]:
    """Yields what will hold the bytes live at the call of `mark()` and the most live at once, since the beginning."""
    found = Allocations(mark=_mark)
    profiler = profile(profile_memory=True, activities=[ProfilerActivity.CPU])
    with _quiet_start():
        profiler.__enter__()  # type: ignore[no-untyped-call]
    try:
        yield found
    finally:
        with _quiet_start():
            profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    # kineto's types are not annotated as they are: its events of memory have their bytes.
    results: Any = profiler.profiler.kineto_results if profiler.profiler is not None else None
    events = [event for event in results.events() if event.name() == "[memory]"]
    live = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if abs(event.nbytes()) == _MARKER_BYTES:
            found.saved_bytes = found.saved_bytes or live
            continue
        live += event.nbytes()
        found.peak_bytes = max(found.peak_bytes, live)


def _mark() -> None:
    torch.empty(_MARKER_BYTES, dtype=torch.uint8)


@contextmanager
def _quiet_start() -> Iterator[None]:
    """The profiler writes lines of its own to standard error when it starts and stops, whatever its log level."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
