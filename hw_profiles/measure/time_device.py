"""Times what one rank computes and copies, while all ranks do the same. Runs on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import scaled_dot_product_attention

from hw_profiles.devices import Precision
from hw_profiles.measure.ranks import Ranks

_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_REPETITIONS = 3
_SLOW_S = 0.25
"""No call on a CPU should take longer: some precisions, fp16 mostly, have no fast kernels there."""
_WIDTHS, _TOKENS = (128, 256, 512, 1024), (64, 128, 256, 512, 1024)
_HEAD_WIDTH = 128
_HEADS = {"cuda": 32, "cpu": 4}


def precisions(device: torch.device) -> tuple[Precision, ...]:
    """Returns the precisions that the device computes in."""
    lacks_bf16 = device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    return tuple(precision for precision in _DTYPES if not (precision == "bf16" and lacks_bf16))


def matmul_flop_per_s(ranks: Ranks, precision: Precision, quick: bool) -> float:
    """Returns what large matrix products reach, in floating-point operations per second."""

    def seconds(width: int, least_s: float) -> float:
        left, right = (torch.ones(width, width, dtype=_DTYPES[precision], device=ranks.device) for _ in range(2))
        target = torch.empty_like(left)
        return _together(ranks, lambda: torch.mm(left, right, out=target), least_s)

    width = 8192
    if ranks.device.type == "cpu":
        width = _largest(_WIDTHS, lambda narrow: seconds(narrow, 0.0), 3)
    return 2 * width**3 / seconds(width, _least_s(quick))


def attention_flop_per_s(ranks: Ranks, precision: Precision, quick: bool) -> float:
    """Returns what causal attention reaches, in floating-point operations per second.

    The operations are counted as if every token saw every other (4 x heads x tokens^2 x width), as traces count them.
    """
    heads = _HEADS[ranks.device.type]

    def flop(tokens: int) -> float:
        return 4.0 * heads * tokens**2 * _HEAD_WIDTH

    def seconds(tokens: int, least_s: float) -> float:
        shape = (1, heads, tokens, _HEAD_WIDTH)
        query, key, value = (torch.ones(shape, dtype=_DTYPES[precision], device=ranks.device) for _ in range(3))
        return _together(ranks, lambda: scaled_dot_product_attention(query, key, value, is_causal=True), least_s)

    with torch.no_grad():
        tokens = 4096
        if ranks.device.type == "cpu":
            tokens = _largest(_TOKENS, lambda few: seconds(few, 0.0), 2)
        return flop(tokens) / seconds(tokens, _least_s(quick))


def memory_bytes_per_s(ranks: Ranks, quick: bool) -> float:
    """Returns the bytes per second that large copies read and write together."""
    size_bytes = (1 << 30) if ranks.device.type == "cuda" else (1 << 25)
    source = torch.empty(size_bytes, dtype=torch.uint8, device=ranks.device).fill_(0)
    target = torch.empty_like(source)
    return 2 * size_bytes / _together(ranks, lambda: target.copy_(source), _least_s(quick))


def link_bytes_per_s(ranks: Ranks) -> float:
    """Returns the bytes per second from the host's pinned memory to the device, all devices at once."""
    size_bytes = 1 << 28
    source = torch.zeros(size_bytes, dtype=torch.uint8).pin_memory()
    target = torch.zeros(size_bytes, dtype=torch.uint8, device=ranks.device)
    return size_bytes / _together(ranks, lambda: target.copy_(source, non_blocking=True), 0.1)


def operator_launch_s(ranks: Ranks, quick: bool) -> float:
    """Returns the host's seconds for one operator on a few elements."""
    values = torch.zeros(16, device=ranks.device)
    num_operators = 500

    def run() -> None:
        for _ in range(num_operators):
            torch.add(values, values)

    return _together(ranks, run, 0.05 if quick else 0.2) / num_operators


def _largest(sizes: Sequence[int], seconds: Callable[[int], float], power: int) -> int:
    """Returns the largest size of which a call is not too slow, by the smallest's seconds and the power of work."""
    smallest_s = seconds(sizes[0])
    return max((size for size in sizes if smallest_s * (size / sizes[0]) ** power <= _SLOW_S), default=sizes[0])


def _least_s(quick: bool) -> float:
    return 0.1 if quick else 0.5


def _together(ranks: Ranks, call: Callable[[], object], least_s: float) -> float:
    """Returns the seconds of one call: all ranks make equally many, and the slowest rank's time counts."""
    call()
    once_s = _slowest_s(ranks, call, 1)
    num_calls = max(int(least_s / once_s), 1)
    return sorted(_slowest_s(ranks, call, num_calls) for _ in range(_REPETITIONS))[_REPETITIONS // 2]


def _slowest_s(ranks: Ranks, call: Callable[[], object], num_calls: int) -> float:
    ranks.finish()
    ranks.together()
    begun = time.perf_counter()
    for _ in range(num_calls):
        call()
    ranks.finish()
    return ranks.slowest([(time.perf_counter() - begun) / num_calls])[0]
