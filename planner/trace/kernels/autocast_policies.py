"""What CUDA's autocast does to the operands of an operator, policy by policy.

Source: torch 2.13, aten/src/ATen/autocast_mode.h, the specializations of WrapFunction_.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from planner.trace.kernels.autocast_lists import Policy


class RefusedUnderAutocastError(RuntimeError):
    """The operator raises under autocast on CUDA, as it does there."""


class Casts:
    """Casts of parameters, kept until the outermost region ends.

    Source: torch 2.13, aten/src/ATen/autocast_mode.cpp, cached_cast.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()

    def to(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Returns the tensor in a type: itself when it is none to cast, one copy for all uses of a parameter."""
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


def autocast_kernel(name: str, policy: Policy, casts: Casts) -> Callable[..., Any]:
    """Returns what runs in place of an operator under autocast: its operands cast by the policy."""
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    call = _POLICIES[policy](operator, casts)
    excluded = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return call(args, kwargs)

    return kernel


_Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def _cast_all(args: Any, dtype: torch.dtype, casts: Casts) -> Any:
    return tree_map(lambda item: casts.to(item, dtype) if isinstance(item, torch.Tensor) else item, args)


def _lower(operator: Any, casts: Casts) -> _Call:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = _cast_all((args, kwargs), torch.get_autocast_dtype("cpu"), casts)
        return operator(*args, **kwargs)

    return call


def _fp32(operator: Any, casts: Casts) -> _Call:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = _cast_all((args, kwargs), torch.float32, casts)
        return operator(*args, **kwargs)

    return call


def _fp32_result(operator: Any, casts: Casts) -> _Call:  # noqa: ARG001 - a policy
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


def _fp32_norm(operator: Any, casts: Casts) -> _Call:  # noqa: ARG001 - a policy
    norm = torch.ops.aten.norm
    typed = norm.ScalarOpt_dtype if operator is norm.Scalar else norm.ScalarOpt_dim_dtype

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = dict(zip((argument.name for argument in operator._schema.arguments), args, strict=False)) | kwargs
        values = [given.get(argument.name, argument.default_value) for argument in operator._schema.arguments]
        return typed(*values, dtype=torch.float32 if _is_eligible(args[0]) else args[0].dtype)

    return call


def _promote(operator: Any, casts: Casts) -> _Call:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        types = {item.dtype for item in tree_leaves((args, kwargs)) if _is_eligible(item)}
        widest = torch.float32 if torch.float32 in types else torch.get_autocast_dtype("cpu")
        args, kwargs = _cast_all((args, kwargs), widest, casts)
        return operator(*args, **kwargs)

    return call


def _refuse(operator: Any, casts: Casts) -> _Call:  # noqa: ARG001 - a policy
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG001
        raise RefusedUnderAutocastError(
            f"{operator._overloadpacket.__name__} is unsafe under autocast, and raises there on CUDA: give the logits "
            "to binary_cross_entropy_with_logits (torch.nn.BCEWithLogitsLoss) instead of their sigmoid"
        )

    return call


_POLICIES: dict[Policy, Callable[[Any, Casts], _Call]] = {
    "lower": _lower,
    "fp32": _fp32,
    "fp32_result": _fp32_result,
    "fp32_norm": _fp32_norm,
    "promote": _promote,
    "refuse": _refuse,
}
