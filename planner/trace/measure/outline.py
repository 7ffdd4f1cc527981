"""Finds lists of equal layers in a model that has not run: by what the layers are, not yet by what they do."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator

from planner.trace.blocks.layout import Repetition
from planner.trace.record.recording import ModelFacts


def outline(facts: ModelFacts) -> tuple[tuple[Repetition, ...], dict[str, Hashable]]:
    """Returns the outermost lists in which two children are equal, and the signature of each of their children.

    Equal are two modules of the same classes, parameters, buffers, attributes (`layer_type`, `window`, ...) and hooks
    throughout. What a forward makes of the layer's own number is not seen.
    """
    below = _below(facts)
    kinds: dict[str, Hashable] = {}
    found = []
    for repetition in _lists("", facts, below):
        for member in repetition.members:
            kinds[member] = _kind(member, facts, below[member])
        if len({kinds[member] for member in repetition.members}) < len(repetition.members):
            found.append(repetition)
    return tuple(found), kinds


def _lists(name: str, facts: ModelFacts, below: dict[str, list[str]]) -> Iterator[Repetition]:
    """Yields the outermost lists of more than one child that all have parameters."""
    module = facts.modules[name]
    with_parameters = [_has_parameters(child, facts, below) for child in module.children]
    if module.is_list and len(module.children) > 1 and all(with_parameters):
        kinds = [_kind(child, facts, below[child]) for child in module.children]
        if len(set(kinds)) < len(kinds):
            yield Repetition(name, is_list=True, members=module.children)
            return
    for child in module.children:
        yield from _lists(child, facts, below)


def _has_parameters(name: str, facts: ModelFacts, below: dict[str, list[str]]) -> bool:
    """Whether the module holds any parameter."""
    return any(facts.modules[part].parameters for part in below[name])


def _below(facts: ModelFacts) -> dict[str, list[str]]:
    below: dict[str, list[str]] = {name: [] for name in facts.modules}
    for name in facts.modules:
        below[name].append(name)
        up = name
        while up:
            up = up.rpartition(".")[0]
            if up in below:
                below[up].append(name)
    return below


def _kind(name: str, facts: ModelFacts, parts: list[str]) -> str:
    digest = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        module = facts.modules[part]
        shapes = [(facts.parameters[i].shape, facts.parameters[i].trainable) for i in module.parameters]
        digest.update(f"{part[len(name) :]}:{module.class_name}:{shapes}:{module.likeness}\n".encode())
    return digest.hexdigest()
