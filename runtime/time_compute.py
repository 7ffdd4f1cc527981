"""Times what a rank computes in a step: all of it, less the time in which it waits for messages."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile


class TimeCompute:
    """Context manager around a step.

    On a CPU a rank waits where a message's `wait` is called, by the engine or within torch's own synchronous
    collectives; everything else is its compute, with the copies into and out of messages. On CUDA it is the streams
    that wait, and compute is what the device's kernels take, less those of NCCL.
    """

    def __init__(self, device: torch.device) -> None:
        """Takes where training runs."""
        self._device = device
        self._waited_s = 0.0
        self._kernels_s: float | None = None
        self._wait: Any = None
        self._profile: Any = None

    def __enter__(self) -> TimeCompute:
        if self._device.type == "cuda":
            self._profile = profile(activities=[ProfilerActivity.CUDA])
            self._profile.__enter__()
            return self
        original = self._wait = dist.Work.wait

        def wait(work: Any, *timeout: Any) -> Any:
            begun_s = time.perf_counter()
            try:
                return original(work, *timeout)
            finally:
                self._waited_s += time.perf_counter() - begun_s

        dist.Work.wait = wait  # type: ignore[method-assign, assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._profile is None:
            dist.Work.wait = self._wait  # type: ignore[method-assign]
            return
        torch.cuda.synchronize(self._device)
        self._profile.__exit__(kind, error, trace)
        kernels = (event for event in self._profile.key_averages() if "nccl" not in event.key.lower())
        self._kernels_s = sum(event.self_device_time_total for event in kernels) / 1e6

    def compute_s(self, step_s: float) -> float:
        """Returns the seconds of compute of the step, which took `step_s` in all."""
        return step_s - self._waited_s if self._kernels_s is None else self._kernels_s
