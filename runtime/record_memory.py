"""Measures the memory of one rank: peak while building, peak in a step, at rest.

On CUDA the caching allocator counts by itself. On a CPU nothing does, so the profiler is asked for the allocator's own
events and for nothing else: with no operator recorded, an allocation costs a few hundred nanoseconds. The allocator
counts only what is allocated while a recorder is on, so it starts before the model is built.

What is not allocated by torch's allocator is not counted: buffers inside gloo, NCCL and oneDNN, and the interpreter.
"""

from __future__ import annotations

import ctypes
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from runtime.in_flight import settle

# The profiler announces every start and stop on standard error below this level (kineto's Logger, torch 2.13).
_QUIET_KINETO_LOG_LEVEL = "99"
_GIVEN_UP_S = 0.05
"""For a thread of gloo to be given a core, where ranks share few."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes that torch's allocator had handed out on one rank."""

    peak_bytes: int
    """Greatest within a steady step: the second or a later one, as the first makes the optimizer states."""
    at_rest_bytes: int
    """Least between two steady steps: after some of them a thread of gloo still holds what it has sent."""
    init_peak_bytes: int | None
    """Greatest until the model and the engine were built; None: nobody said when that was."""


class MemoryRecorder:
    """Records one rank's memory around any training loop.

    Example:
        with MemoryRecorder(torch.device("cpu")) as memory:
            engine = build()
            memory.built()
            for batch in batches:
                train_step(engine, batch)
                memory.step_ended()
        memory.use()
    """

    def __init__(self, device: torch.device) -> None:
        """Prepares a recorder for `device` ("cpu" or "cuda"); nothing is measured before it is entered."""
        self._meter: _CpuMeter | _CudaMeter = _CudaMeter(device) if device.type == "cuda" else _CpuMeter()
        self._init_peak_bytes: int | None = None
        self._steps: list[tuple[int, int]] = []

    def __enter__(self) -> MemoryRecorder:
        self._meter.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._meter.stop()

    def built(self) -> None:
        """Marks the end of building: the model and the engine exist, no step has run."""
        self._init_peak_bytes, _ = self._meter.lap()

    def step_ended(self) -> None:
        """Marks the end of one optimizer step (all its micro-batches)."""
        self._steps.append(self._meter.lap())

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Of each step, the greatest bytes within it, and those at its end."""
        return tuple(self._steps)

    def use(self) -> MemoryUse:
        """Returns what was measured.

        Raises:
            RuntimeError: Fewer than two steps ran: there is no steady step to report.
        """
        if len(self._steps) < 2:
            raise RuntimeError(f"memory of a steady step needs 2 steps, and {len(self._steps)} ran: run more")
        return MemoryUse(
            peak_bytes=max(peak for peak, _ in self._steps[1:]),
            at_rest_bytes=min(now for _, now in self._steps[1:]),
            init_peak_bytes=self._init_peak_bytes,
        )


class _CpuMeter:
    """Follows the CPU allocator's running total through the profiler's memory events."""

    def __init__(self) -> None:
        self._base_bytes = 0

    def start(self) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", _QUIET_KINETO_LOG_LEVEL)
        _count_every_thread(True)
        self._profile()
        _, self._base_bytes = self._read()
        self._profile()

    def lap(self) -> tuple[int, int]:
        """Returns (peak, now) bytes since the last lap. Events are dropped here, so they never pile up."""
        peak_bytes, now_bytes = self._read()
        self._profile()
        return peak_bytes - self._base_bytes, now_bytes - self._base_bytes

    def stop(self) -> None:
        self._read()
        _count_every_thread(False)

    def _profile(self) -> None:
        profiler = torch._C._profiler
        config = profiler.ProfilerConfig(
            profiler.ProfilerState.KINETO,
            False,  # report_input_shapes
            True,  # profile_memory
            False,  # with_stack
            False,  # with_flops
            False,  # with_modules
            profiler._ExperimentalConfig(),
        )
        activities = {profiler.ProfilerActivity.CPU}
        torch._C._autograd._prepare_profiler(config, activities)
        # Operators are recorded for the scopes named here; a scope that never occurs leaves allocations only.
        scopes = {profiler.RecordScope.LITE_INTERPRETER}
        torch._C._autograd._enable_profiler(config, activities, scopes)  # type: ignore[call-arg]

    def _read(self) -> tuple[int, int]:
        # A thread of gloo notes what it allocates for a message in the profile of whoever began it, and torch 2.13 does
        # not guard what it reads meanwhile. What is copied for a message in flight is no memory at rest either; the
        # thread gives it up a moment after the message has come.
        settle()
        time.sleep(_GIVEN_UP_S)
        torch.empty(1)  # an event at the end, so that the last total is the present one
        result = torch._C._autograd._disable_profiler()
        totals = [
            (event.start_time_ns, event.extra_fields.total_allocated)
            for event in result.experimental_event_tree()
            if isinstance(event.extra_fields, torch._C._profiler._ExtraFields_Allocation)
            and event.extra_fields.device.type == "cpu"
        ]
        totals.sort(key=lambda total: total[0])
        return max(total for _, total in totals), totals[-1][1]


def _count_every_thread(on: bool) -> None:
    """Makes the CPU allocator count in every thread: gloo's threads free tensors, and the profiler sees only its own.

    Source: c10/core/CPUAllocator.cpp, ProfiledCPUMemoryReporter (torch 2.13): a flag without a setter in Python.

    Raises:
        RuntimeError: This build of torch has no such flag; memory on a CPU cannot be measured with it.
    """
    libraries = sorted((Path(torch.__file__).parent / "lib").glob("libc10.*"))
    try:
        flag = ctypes.c_bool.in_dll(ctypes.CDLL(str(libraries[0])), "FLAGS_caffe2_report_cpu_memory_usage")
    except (IndexError, OSError, ValueError) as error:
        raise RuntimeError(f"torch {torch.__version__} cannot count the CPU allocator's memory: {error}") from error
    flag.value = on


class _CudaMeter:
    """Reads the caching allocator's own statistics."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def start(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def lap(self) -> tuple[int, int]:
        torch.cuda.synchronize(self._device)
        lap = torch.cuda.max_memory_allocated(self._device), torch.cuda.memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        return lap

    def stop(self) -> None:
        pass
