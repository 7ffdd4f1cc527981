"""Replaces the functions of kernel packages that are installed, wherever a module has bound them to a name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    functions = {
        id(real): entry.value for entry, real in found.items() if callable(real) and not isinstance(real, type)
    }
    with ExitStack() as stack:
        for entry, real in found.items():
            if isinstance(real, type) and hasattr(entry.value, "forward"):
                stack.enter_context(patch.object(real, "forward", entry.value.forward))
        for module in list(sys.modules.values()) if functions else ():
            names = getattr(module, "__dict__", {})
            bound = {name: functions[id(value)] for name, value in list(names.items()) if id(value) in functions}
            if bound:
                stack.enter_context(patch.dict(names, bound))
        yield


def _found(entry: Entry) -> Any:
    """What the name is now; None where the package is not imported, or is a stand-in."""
    module = sys.modules.get(entry.module)
    real = None if module is None or isinstance(module, StandIn) else module.__dict__.get(entry.name)
    return None if real is entry.value else real
