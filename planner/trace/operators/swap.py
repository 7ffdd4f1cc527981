"""Replaces the functions of installed kernel packages, wherever a module has bound them to a name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from planner.trace.operators.entry import Entry
from planner.trace.operators.stand_in import StandIn


@contextmanager
def swapped(packages: dict[str, tuple[Entry, ...]]) -> Iterator[None]:
    """While on, functions of packages that are installed and imported are their entries' values.

    Also under names that a model bound with `from package import function`. Classes stay: a module that the model
    made is of the class that it was made of, and calls the functions.
    """
    loaded = [entry for members in packages.values() for entry in members if _is_function(entry)]
    values = {id(_found(entry)): entry.value for entry in loaded}
    changed: list[tuple[dict[str, Any], str, Any]] = []
    for module in list(sys.modules.values()) if values else ():
        names = getattr(module, "__dict__", {})
        for name, value in list(names.items()):
            if id(value) in values:
                changed.append((names, name, value))
    for names, name, value in changed:
        names[name] = values[id(value)]
    try:
        yield
    finally:
        for names, name, value in changed:
            names[name] = value


def _is_function(entry: Entry) -> bool:
    found = _found(entry)
    return found is not None and found is not entry.value and not isinstance(found, type)


def _found(entry: Entry) -> Any:
    """What the name is now; None where the package is not imported, or a stand-in."""
    module = sys.modules.get(entry.module)
    return None if module is None or isinstance(module, StandIn) else module.__dict__.get(entry.name)
