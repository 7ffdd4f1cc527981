"""Operators of torch that run something else for a while, beneath every name that Python has for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def replaced_operators(kernels: Mapping[str, Callable[..., Any]], key: str) -> Iterator[None]:
    """While on, the dispatcher has these kernels for a dispatch key, by the operators' names with their overloads."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            # Torch warns of replacing its own kernels, which is what this is for.
            warnings.simplefilter("ignore", UserWarning)
            for name, kernel in kernels.items():
                library.impl(name, kernel, key)
        yield
    finally:
        library._destroy()
