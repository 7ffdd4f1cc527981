"""Replaces the functions of kernel packages that are installed, wherever a module has bound them to a name."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any
from unittest.mock import patch

from planner.trace.operators.entry import Entry
from planner.trace.operators.stand_in import StandIn


@contextmanager
def swapped(packages: dict[str, tuple[Entry, ...]]) -> Iterator[None]:
    """While on, functions of packages that are installed and imported are their entries' values.

    Also under names that a model bound with `from package import function`. A class stays, since a model may consist of
    its instances already, and runs its entry's `forward`.
    """
    found = {entry: _found(entry) for members in packages.values() for entry in members}
    classes = {real: entry.value for entry, real in found.items() if isinstance(real, type)}
    functions = {real: entry.value for entry, real in found.items() if callable(real) and not isinstance(real, type)}
    bound = list(_bound(functions))
    with ExitStack() as stack:
        for real, value in classes.items():
            if hasattr(value, "forward"):
                stack.enter_context(patch.object(real, "forward", value.forward))
        for names, name, real in bound:
            names[name] = functions[real]
            stack.callback(names.__setitem__, name, real)
        yield


def _bound(functions: dict[Any, Any]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Yields where a module has bound one of the functions; a user's file need not be in `sys.modules`."""
    for names in gc.get_referrers(*functions) if functions else ():
        if isinstance(names, dict) and "__builtins__" in names:
            for name, value in list(names.items()):
                if isinstance(value, FunctionType) and value in functions:
                    yield names, name, value


def _found(entry: Entry) -> Any:
    """What the name is now; None where the package is not imported, or is a stand-in."""
    module = sys.modules.get(entry.module)
    real = None if module is None or isinstance(module, StandIn) else module.__dict__.get(entry.name)
    return None if real is entry.value else real
