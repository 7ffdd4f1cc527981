"""How an operator is defined that stands for a kernel: what it returns and how many operations it runs, no more.

The kernels that these stand for are launched on a GPU by packages of their own, past the dispatcher, so that a trace
cannot see them. The autograd functions around them are written anew beside each operator: what they save for backward
is what the real ones save.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

NAMESPACE = "shardplan"

_LIBRARY = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
_PACKAGES: dict[Any, str] = {}


def kernel(schema: str, package: str, flop: Callable[..., int] | None = None) -> Callable[[Callable[..., Any]], Any]:
    """Defines the operator of a kernel; decorates its shape rule, which makes the results out of the operands.

    Args:
        schema: Name, operands and results as torch writes them.
        package: The package and version whose kernel it stands for.
        flop: Its floating-point operations, from the operands; None: elementwise, counted as 0. Their kind is told from
            the operator's name, as of any that a user registers (`planner.trace.flop_formulas.flops`).
    """

    def defined(shapes: Callable[..., Any]) -> Any:
        _LIBRARY.define(schema)  # type: ignore[no-untyped-call]
        name = schema.partition("(")[0]
        torch.library.register_fake(f"{NAMESPACE}::{name}", shapes, lib=_LIBRARY)
        operator = getattr(getattr(torch.ops, NAMESPACE), name)
        _PACKAGES[operator] = package
        register_flop_formula(operator, get_raw=True)(_without_result(flop or _none))
        return operator

    return defined


def package_of(operator: Any) -> str | None:
    """Returns the package and version whose kernel an operator (packet) stands for, or None when it is torch's own."""
    return _PACKAGES.get(operator)


def rounded(length: int, multiple: int) -> int:
    """Returns the least multiple of `multiple` that holds `length`."""
    return math.ceil(length / multiple) * multiple


def contiguous_rows(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns the tensors, copied where their last axis is not contiguous, as the kernels want them."""
    return tuple(tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors)


def _none(*_: Any, **__: Any) -> int:
    return 0


def _without_result(flop: Callable[..., int]) -> Callable[..., int]:
    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:  # noqa: ARG001 - torch passes the result
        return flop(*args, **kwargs)

    return counted
