"""Modules that stand for a kernel package which is not installed here, so that a file that imports it can be traced."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from planner.trace.operators.entry import Entry


class UnknownNameError(ImportError):
    """A name of a kernel package that nothing stands for."""


class StandIn(ModuleType):
    """A module with the names that are known; any other is an error that says so."""

    def __init__(self, name: str, version: str, miss: Callable[[str], None]) -> None:
        super().__init__(name, f"Stands for {name} {version} while a model is traced.")
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__version__ = version
        self._miss = miss

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._miss(f"{self.__name__}.{name} is not described here; the model's file goes on as if it were not there")
        known = ", ".join(sorted(key for key in vars(self) if not key.startswith("_"))) or "none"
        raise UnknownNameError(
            f"{self.__name__} is not installed here, and nothing stands for its {name!r} (known: {known}). "
            "Describe it as a custom operator (docs/custom_kernels.md), or install the package",
            name=self.__name__,
        )


@contextmanager
def stand_ins(
    packages: dict[str, tuple[Entry, ...]], versions: dict[str, str], miss: Callable[[str], None]
) -> Iterator[None]:
    """While on, each of the packages that is not installed can be imported, as far as its entries go.

    `miss` is told of every other name that is asked for: a file may catch the error and do without.
    """
    added: list[str] = []
    try:
        for package, members in packages.items():
            if not is_installed(package):
                added += _add(package, members, versions[package], miss)
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)


def is_installed(package: str) -> bool:
    """Whether Python finds the package, or it is a stand-in already."""
    return package in sys.modules or importlib.util.find_spec(package) is not None


def _add(package: str, members: tuple[Entry, ...], version: str, miss: Callable[[str], None]) -> list[str]:
    modules = {package: StandIn(package, version, miss)}
    for member in members:
        parts = member.module.split(".")
        for end in range(2, len(parts) + 1):
            name = ".".join(parts[:end])
            if name not in modules:
                modules[name] = StandIn(name, version, miss)
                setattr(modules[".".join(parts[: end - 1])], parts[end - 1], modules[name])
        setattr(modules[member.module], member.name, member.value)
    sys.modules.update(modules)
    return list(modules)
