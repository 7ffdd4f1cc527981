"""The names of torchvision that timm imports at its load; nothing behind them runs in the zoo."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _Named(type):
    """The type of classes that have every name: each a text."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Anything(ModuleType):
    """A module that has every name: each a class of no content."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Named(name, (), {})
        setattr(self, name, made)
        return made


@contextmanager
def stand_in_torchvision() -> Iterator[None]:
    """Inside, `import torchvision` finds the stand-in, unless the real one is installed."""
    if "timm" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        yield
        return
    names = ("torchvision", *(f"torchvision.{part}" for part in ("models", "ops", "transforms", "datasets")))
    deeper = ("ops.misc", "models.feature_extraction", "transforms.functional")
    made = {name: _Anything(name) for name in (*names, *(f"torchvision.{part}" for part in deeper))}
    for name, module in made.items():
        module.__path__ = []
        owner, _, leaf = name.rpartition(".")
        if owner:
            setattr(made[owner], leaf, module)
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            sys.modules.pop(name, None)
