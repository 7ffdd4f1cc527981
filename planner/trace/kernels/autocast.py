"""`torch.autocast` as it is on the device that the trace is for.

On a CPU it is torch's own. CUDA casts other operators: its lists are put in place of the CPU's, on the CPU's tensors,
so that a step saves what it would save on a GPU. A model's own regions of device "cuda" are the same region.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch.amp import autocast_mode

from planner.trace.kernels.autocast_lists import CUDA_POLICIES
from planner.trace.kernels.autocast_policies import Casts, autocast_kernel

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

_KEY = "AutocastCPU"


@contextmanager
def autocast_region(autocast: Literal["bf16", "fp16"] | None) -> Iterator[None]:
    """The region of forward and loss; backward is outside of it, as in training."""
    if autocast is None:
        yield
        return
    with torch.autocast("cpu", dtype=DTYPES[autocast]):
        yield


@contextmanager
def autocast_rules(device: Literal["cuda", "cpu"]) -> Iterator[None]:
    """Inside, every autocast region casts what it casts on `device`; also one that a model opens itself."""
    if device == "cpu":
        yield
        return
    casts = Casts()
    with ExitStack() as stack:
        stack.callback(_overridden(casts)._destroy)
        for owner, attribute, replacement in _as_cuda(casts):
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield


def _overridden(casts: Casts) -> Any:
    """Puts CUDA's rules in place of the CPU's, until the library that is returned is destroyed."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        # Torch warns of replacing its own kernels, which is what this is for.
        warnings.simplefilter("ignore", UserWarning)
        for name in sorted(_names_of(_KEY) - CUDA_POLICIES.keys()):
            library.impl(name, torch.library.fallthrough_kernel, _KEY)
        for name, policy in CUDA_POLICIES.items():
            library.impl(name, autocast_kernel(name, policy, casts), _KEY)
    return library


def _names_of(key: str) -> set[str]:
    """Returns the operators that torch itself registers for an autocast key."""
    names = torch._C._dispatch_get_all_op_names()
    return {name[6:] for name in names if name.startswith("aten::") and _has_kernel(name, key)}


def _has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def _as_cuda(casts: Casts) -> list[tuple[Any, str, Callable[..., Any]]]:
    """Replacements for what asks for autocast's state: that of "cuda" is that of the CPU's tensors."""
    region, is_enabled, get_dtype = torch.autocast.__init__, torch.is_autocast_enabled, torch.get_autocast_dtype
    forget, cast = torch.clear_autocast_cache, autocast_mode._cast

    def opened(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or _dtype_of_cuda()
        region(self, device_type, dtype, *args, **kwargs)

    def _dtype_of_cuda() -> torch.dtype:
        return get_dtype("cpu") if is_enabled("cpu") else get_dtype("cuda")

    def enabled(device_type: str = "cuda") -> bool:
        return is_enabled("cpu" if device_type == "cuda" else device_type)

    def dtype_of(device_type: str) -> torch.dtype:
        return _dtype_of_cuda() if device_type == "cuda" else get_dtype(device_type)

    def cast_on(value: Any, device_type: str, dtype: torch.dtype) -> Any:
        return cast(value, "cpu" if device_type == "cuda" else device_type, dtype)

    def forgotten() -> None:
        casts.clear()
        forget()

    return [
        (torch.autocast, "__init__", opened),
        (torch, "is_autocast_enabled", enabled),
        (torch, "get_autocast_dtype", dtype_of),
        (torch, "get_autocast_gpu_dtype", _dtype_of_cuda),
        (torch, "clear_autocast_cache", forgotten),
        # For autograd functions with `torch.amp.custom_fwd(device_type="cuda", cast_inputs=...)`.
        (autocast_mode, "_cast", cast_on),
    ]
