"""One Python name that is replaced while a model is traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A function or class of a kernel package, and what stands for it."""

    module: str
    """The module where users find it, such as "flash_attn.flash_attn_interface"."""
    name: str
    value: Any

    @property
    def package(self) -> str:
        """The package that it belongs to: the first part of the module's name."""
        return self.module.partition(".")[0]


def entries(modules: tuple[str, ...], *values: Any, **named: Any) -> tuple[Entry, ...]:
    """Returns an entry for each value in each module: under its own name, or under the keyword's."""
    by_name = {value.__name__: value for value in values} | named
    return tuple(Entry(module, name, value) for module in modules for name, value in by_name.items())
