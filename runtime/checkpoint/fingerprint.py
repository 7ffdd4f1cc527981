"""What a checkpoint says of its model and optimizer, to refuse others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True, slots=True)
class Entry:
    """A parameter or a buffer."""

    shape: tuple[int, ...]
    kind: str
    """`trained`, `frozen` or `buffer`."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Names, shapes and what is trained; nothing of the plan, the ranks or the precision."""

    entries: dict[str, Entry]
    """By first name, in the model's order: parameters, then the buffers that a state_dict has."""
    aliases: dict[str, str]
    """Other names of tied parameters, with the first ones."""
    optimizer: str
    """Its class."""

    def to_json(self) -> dict[str, Any]:
        """Returns it as a JSON object."""
        return asdict(self)

    def differences(self, other: Fingerprint) -> list[str]:
        """Returns a sentence for each entry in which the model of `other` differs from this one."""
        found = []
        for name, entry in self.entries.items():
            theirs = other.entries.get(name)
            if theirs is None:
                found.append(f"{name} is missing in the model")
            elif theirs.shape != entry.shape:
                found.append(f"{name} has the shape {list(entry.shape)}, in the model {list(theirs.shape)}")
            elif theirs.kind != entry.kind:
                found.append(f"{name} is {entry.kind}, in the model {theirs.kind}")
        found += [
            f"{name} of the model is missing in the checkpoint" for name in other.entries if name not in self.entries
        ]
        return found


def fingerprint_of(
    model: nn.Module, optimizer: str, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Fingerprint:
    """Returns the fingerprint of a model, sharded or not.

    Args:
        model: The model.
        optimizer: Name of the optimizer's class.
        shapes: Of parameters whose tensors do not show it themselves.
    """
    first: dict[Any, str] = {}
    entries: dict[str, Entry] = {}
    aliases: dict[str, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter in first:
            aliases[name] = first[parameter]
            continue
        first[parameter] = name
        shape = tuple(shapes[name] if shapes and name in shapes else parameter.shape)
        entries[name] = Entry(shape, "trained" if parameter.requires_grad else "frozen")
    for name, buffer in persistent_buffers(model).items():
        entries[name] = Entry(tuple(buffer.shape), "buffer")
    return Fingerprint(entries, aliases, optimizer)


def persistent_buffers(model: nn.Module) -> dict[str, Any]:
    """Returns the buffers that a state_dict has, by their first names."""
    found: dict[str, Any] = {}
    seen: dict[int, None] = {}
    for module_name, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set and id(buffer) not in seen:
                seen.setdefault(id(buffer))
                found[f"{module_name}.{name}" if module_name else name] = buffer
    return found


def read_fingerprint(document: Mapping[str, Any]) -> Fingerprint:
    """Returns the fingerprint that `to_json` wrote."""
    entries = {name: Entry(tuple(each["shape"]), each["kind"]) for name, each in document["entries"].items()}
    return Fingerprint(entries, dict(document["aliases"]), document["optimizer"])
