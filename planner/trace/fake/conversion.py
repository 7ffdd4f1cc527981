"""Conversion of modules (`to`, `half`, `bfloat16`, ...) where parameters are fake.

Torch swaps a fake parameter with its converted one in place, and cannot where anything else refers to it. Here the
converted one takes its place in every module that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn


@contextmanager
def convertible_modules() -> Iterator[None]:
    """While on, a module can be converted to another type or memory format; tied parameters stay tied."""
    with patch.object(nn.Module, "_apply", _Conversion().apply()):
        yield


class _Conversion:
    def __init__(self) -> None:
        self._depth = 0
        self._converted: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}
        """By identity; the first of the pair keeps the identity from being given away."""

    def apply(self) -> Callable[..., nn.Module]:
        """Returns what takes the place of `nn.Module._apply`."""

        def applied(module: nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
            self._depth += 1
            try:
                for child in module.children() if recurse else ():
                    child._apply(fn)  # type: ignore[no-untyped-call]
                self._convert(module, fn)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._converted.clear()
            return module

        return applied

    def _convert(self, module: nn.Module, fn: Callable[[Any], Any]) -> None:
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in self._converted:
                with torch.no_grad():
                    value = fn(parameter)
                same = value is parameter
                new = parameter if same else nn.Parameter(value, requires_grad=parameter.requires_grad)
                self._converted[id(parameter)] = (parameter, new)
            module._parameters[name] = self._converted[id(parameter)][1]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = fn(buffer)
