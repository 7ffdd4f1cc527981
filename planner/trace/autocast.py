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
from torch.utils._pytree import tree_leaves, tree_map

from planner.trace.kernels.autocast_lists import CUDA_POLICIES, Policy

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

_KEY = "AutocastCPU"


class RefusedUnderAutocastError(RuntimeError):
    """The operator raises under autocast on CUDA, as it does there."""


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
    casts = _Casts()
    with ExitStack() as stack:
        stack.callback(_overridden(casts)._destroy)
        for owner, attribute, replacement in _as_cuda(casts):
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield


def _overridden(casts: _Casts) -> Any:
    """Puts CUDA's rules in place of the CPU's, until the library that is returned is destroyed."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        # Torch warns of replacing its own kernels, which is what this is for.
        warnings.simplefilter("ignore", UserWarning)
        for name in sorted(_names_of(_KEY) - CUDA_POLICIES.keys()):
            library.impl(name, torch.library.fallthrough_kernel, _KEY)
        for name, policy in CUDA_POLICIES.items():
            library.impl(name, _kernel(name, policy, casts), _KEY)
    return library


def _names_of(key: str) -> set[str]:
    """Returns the operators that torch itself registers for an autocast key."""
    names = torch._C._dispatch_get_all_op_names()
    return {name[6:] for name in names if name.startswith("aten::") and _has_kernel(name, key)}


def _has_kernel(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


class _Casts:
    """Casts of parameters, kept until the outermost region ends.

    Source: torch 2.13, aten/src/ATen/autocast_mode.cpp, cached_cast.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def clear(self) -> None:
        self._kept.clear()

    def to(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not _is_eligible(tensor) or tensor.dtype == dtype:
            return tensor
        is_parameter = (
            dtype == torch.get_autocast_dtype("cpu")
            and tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
            and torch.is_autocast_cache_enabled()
        )
        if not is_parameter:
            return tensor.to(dtype)
        if id(tensor) not in self._kept:
            self._kept[id(tensor)] = (tensor, tensor.to(dtype))
        return self._kept[id(tensor)][1]


def _is_eligible(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point() and item.dtype != torch.float64


def _kernel(name: str, policy: Policy, casts: _Casts) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    call = _POLICIES[policy](operator, casts)
    excluded = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return call(args, kwargs)

    return kernel


_Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def _cast_all(args: Any, dtype: torch.dtype, casts: _Casts) -> Any:
    return tree_map(lambda item: casts.to(item, dtype) if isinstance(item, torch.Tensor) else item, args)


def _lower(operator: Any, casts: _Casts) -> _Call:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = _cast_all((args, kwargs), torch.get_autocast_dtype("cpu"), casts)
        return operator(*args, **kwargs)

    return call


def _fp32(operator: Any, casts: _Casts) -> _Call:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = _cast_all((args, kwargs), torch.float32, casts)
        return operator(*args, **kwargs)

    return call


def _fp32_result(operator: Any, casts: _Casts) -> _Call:  # noqa: ARG001 - a policy
    place = [argument.name for argument in operator._schema.arguments].index("dtype")
    fused = _FUSED_SOFTMAX.get(operator)

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if fused is not None and args[0].dtype == torch.float16 and len(args) == 2 and not kwargs:
            return fused(*args, True)
        if _is_eligible(args[0]):
            if len(args) > place:
                args = (*args[:place], args[place] or torch.float32, *args[place + 1 :])
            else:
                kwargs = {**kwargs, "dtype": kwargs.get("dtype") or torch.float32}
        return operator(*args, **kwargs)

    return call


_FUSED_SOFTMAX = {
    torch.ops.aten.softmax.int: torch.ops.aten._softmax.default,
    torch.ops.aten.log_softmax.int: torch.ops.aten._log_softmax.default,
}
"""Kernels that read fp16 and give fp32. Source: torch 2.13, aten/src/ATen/native/SoftMax.cpp, softmax."""


def _fp32_norm(operator: Any, casts: _Casts) -> _Call:  # noqa: ARG001 - a policy
    norm = torch.ops.aten.norm
    typed = norm.ScalarOpt_dtype if operator is norm.Scalar else norm.ScalarOpt_dim_dtype

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip((argument.name for argument in operator._schema.arguments), args, strict=False)) | kwargs
        values = [given.get(argument.name, argument.default_value) for argument in operator._schema.arguments]
        return typed(*values, dtype=torch.float32 if _is_eligible(args[0]) else args[0].dtype)

    return call


def _promote(operator: Any, casts: _Casts) -> _Call:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        types = {item.dtype for item in tree_leaves((args, kwargs)) if _is_eligible(item)}
        widest = torch.float32 if torch.float32 in types else torch.get_autocast_dtype("cpu")
        args, kwargs = _cast_all((args, kwargs), widest, casts)
        return operator(*args, **kwargs)

    return call


def _refuse(operator: Any, casts: _Casts) -> _Call:  # noqa: ARG001 - a policy
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
        raise RefusedUnderAutocastError(
            f"{operator._overloadpacket.__name__} is unsafe under autocast, and raises there on CUDA: give the logits "
            "to binary_cross_entropy_with_logits (torch.nn.BCEWithLogitsLoss) instead of their sigmoid"
        )

    return call


_POLICIES: dict[Policy, Callable[[Any, _Casts], _Call]] = {
    "lower": _lower,
    "fp32": _fp32,
    "fp32_result": _fp32_result,
    "fp32_norm": _fp32_norm,
    "promote": _promote,
    "refuse": _refuse,
}


def _as_cuda(casts: _Casts) -> list[tuple[Any, str, Callable[..., Any]]]:
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
