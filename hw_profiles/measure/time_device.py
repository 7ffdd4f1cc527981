"""Times what one rank computes and copies, while all ranks do the same. Runs on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from hw_profiles.schema import Precision

_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_REPETITIONS = 3
_SMALL_WIDTH = 256
_SLOW_S = 0.03


def matmul_flop_per_s(device: torch.device, quick: bool) -> dict[Precision, float]:
    """Returns what large matrix products reach, in floating-point operations per second, by precision."""
    least_s = 0.1 if quick else 0.5
    return {
        precision: _flop_per_s(dtype, device, least_s)
        for precision, dtype in _DTYPES.items()
        if device.type == "cpu" or precision != "bf16" or torch.cuda.is_bf16_supported(including_emulation=False)
    }


def memory_bytes_per_s(device: torch.device, quick: bool) -> float:
    """Returns the bytes per second that large copies read and write together."""
    size_bytes = (1 << 30) if device.type == "cuda" else (1 << 25)
    source = torch.zeros(size_bytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * size_bytes / _together(lambda: target.copy_(source), device, 0.1 if quick else 0.5)


def link_bytes_per_s(device: torch.device, quick: bool) -> float:
    """Returns the bytes per second from the host's pinned memory to the device; without a device, those of a copy."""
    if device.type == "cpu":
        return memory_bytes_per_s(device, quick) / 2
    size_bytes = 1 << 28
    source = torch.zeros(size_bytes, dtype=torch.uint8).pin_memory()
    target = torch.zeros(size_bytes, dtype=torch.uint8, device=device)
    return size_bytes / _together(lambda: target.copy_(source, non_blocking=True), device, 0.1)


def operator_launch_s(quick: bool) -> float:
    """Returns the host's seconds for one operator on a few elements."""
    values = torch.zeros(16)
    num_operators = 500

    def run() -> None:
        for _ in range(num_operators):
            torch.add(values, values)

    return _together(run, torch.device("cpu"), 0.05 if quick else 0.2) / num_operators


def _flop_per_s(dtype: torch.dtype, device: torch.device, least_s: float) -> float:
    small_s = _seconds_of_product(_SMALL_WIDTH, dtype, device, 0.0)
    if device.type == "cpu" and small_s > _SLOW_S:
        # A precision without fast CPU kernels, fp16 mostly: large products would take seconds each.
        return 2 * _SMALL_WIDTH**3 / small_s
    width = 8192 if device.type == "cuda" else 1024
    return 2 * width**3 / _seconds_of_product(width, dtype, device, least_s)


def _seconds_of_product(width: int, dtype: torch.dtype, device: torch.device, least_s: float) -> float:
    left = torch.ones(width, width, dtype=dtype, device=device)
    right = torch.ones(width, width, dtype=dtype, device=device)
    target = torch.empty(width, width, dtype=dtype, device=device)
    return _together(lambda: torch.mm(left, right, out=target), device, least_s)


def _together(call: Callable[[], object], device: torch.device, least_s: float) -> float:
    """Returns the seconds of one call: all ranks make equally many, and the slowest rank's time counts."""
    call()
    once_s = _slowest_s(call, 1, device)
    num_calls = max(int(least_s / once_s), 1)
    return sorted(_slowest_s(call, num_calls, device) for _ in range(_REPETITIONS))[_REPETITIONS // 2]


def _slowest_s(call: Callable[[], object], num_calls: int, device: torch.device) -> float:
    dist.barrier()
    start = time.perf_counter()
    for _ in range(num_calls):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = torch.tensor((time.perf_counter() - start) / num_calls, dtype=torch.float64)
    if dist.get_backend() == "nccl":
        seconds = seconds.cuda()
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds)
