"""Finds the blocks of a recorded model: the repeated layers, and each other part that owns parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from costmodels.workload import Block
from planner.trace.blocks.layout import BlockLayout, Repetition
from planner.trace.blocks.signature import Signatures, ancestors
from planner.trace.record.recording import ModelFacts, Recording


def find_blocks(facts: ModelFacts, recording: Recording) -> BlockLayout:
    """Returns the blocks in order of first execution; "" is the root with all that belongs to no other.

    Repeated layers are the children of the outermost list in which two are equal. Every other part that owns
    parameters is a block of its own, as large as it can be without containing repeated layers. A parameter belongs to
    the block of its first name.
    """
    signatures = Signatures(facts, recording)
    repetitions = tuple(_Finder(facts, recording, signatures).repetitions(""))
    repeated = [member for repetition in repetitions for member in repetition.members]
    # A module may have two places in the tree.
    names = list(dict.fromkeys([*repeated, *_units("", facts, signatures, frozenset(repeated))]))
    order = {name: position for position, name in enumerate(_by_first_execution(["", *names], recording))}
    block_of = {name: next(order[up] for up in ancestors(name) if up in order) for name in facts.modules}
    owned: list[list[int]] = [[] for _ in order]
    for index, parameter in enumerate(facts.parameters):
        owned[next(order[up] for up in ancestors(parameter.name) if up in order)].append(index)
    classes: dict[str, int] = {}
    blocks = []
    run_again = _run_again(recording, block_of)
    for index, name in enumerate(order):
        signature = signatures.of(name) if name else "root"
        blocks.append(
            Block(
                name=name,
                block_class=classes.setdefault(signature, len(classes)),
                parameters=tuple(owned[order[name]]),
                recomputable=name in repeated and index not in run_again and _reads_gradients(name, signatures),
            )
        )
    return BlockLayout(tuple(blocks), block_of, repetitions)


class _Finder:
    def __init__(self, facts: ModelFacts, recording: Recording, signatures: Signatures) -> None:
        self._facts = facts
        self._signatures = signatures
        self._called = {call.module for call in recording.calls}

    def repetitions(self, name: str) -> Iterator[Repetition]:
        """Yields the outermost repetitions at and beneath a module, in the model's order."""
        module = self._facts.modules[name]
        within: dict[str, Repetition] = {}
        for family in self._families(name):
            repetition = Repetition(name, module.is_list, family)
            deeper = [found for member in family for found in self.repetitions(member)]
            # A list that is never called is a loop's; one layer in it is no less a layer for being alone.
            is_loop = module.is_list and name not in self._called
            if self._has_equals(family) or (is_loop and not deeper and self._is_uniform(family)):
                within |= dict.fromkeys(family, repetition)
        seen: set[tuple[str, ...]] = set()
        for child in module.children:
            if child not in within:
                yield from self.repetitions(child)
            elif within[child].members not in seen:
                seen.add(within[child].members)
                yield within[child]

    def _families(self, name: str) -> list[tuple[str, ...]]:
        """Children of a list, or children whose names differ in a number only, that were called and have parameters."""
        module = self._facts.modules[name]
        groups: dict[str, list[str]] = {}
        for child in module.children:
            if child in self._called and self._signatures.parameters(child):
                leaf = child.rpartition(".")[2]
                key = "" if module.is_list else re.sub(r"\d+", "#", leaf)
                if module.is_list or key != leaf:
                    groups.setdefault(key, []).append(child)
        return [tuple(group) for group in groups.values() if len(group) > 1 or module.is_list]

    def _has_equals(self, family: tuple[str, ...]) -> bool:
        found = [self._signatures.of(member) for member in family]
        return len(set(found)) < len(found)

    def _is_uniform(self, family: tuple[str, ...]) -> bool:
        return len({self._facts.modules[member].type_name for member in family}) == 1


def _units(name: str, facts: ModelFacts, signatures: Signatures, repeated: frozenset[str]) -> Iterator[str]:
    """Yields the parts beneath a module that own parameters and hold no repeated layers."""
    for child in facts.modules[name].children:
        if child in repeated or not signatures.parameters(child):
            continue
        holds_layers = any(part in repeated for part in signatures.subtree(child))
        holds_all = len(signatures.parameters(child)) == len(facts.parameters)
        if holds_layers or (holds_all and facts.modules[child].children):
            yield from _units(child, facts, signatures, repeated)
        else:
            yield child


def _by_first_execution(names: list[str], recording: Recording) -> list[str]:
    """Blocks that never ran come last, as they stand in the model."""
    known = set(names)
    first: dict[str, int] = {}
    for node in recording.graph.nodes:
        if node.op == "call_function" and "fqn" in node.meta:
            block = next(up for up in ancestors(node.meta["fqn"]) if up in known)
            first.setdefault(block, node.meta["index"])
    return sorted(names, key=lambda name: first.get(name, len(recording.graph.nodes)))


def _run_again(recording: Recording, block_of: dict[str, int]) -> frozenset[int]:
    """Returns the blocks that the model's own checkpoints recompute already."""
    return frozenset(
        block_of[node.meta["fqn"]] for node in recording.graph.nodes if node.meta.get("phase") == "recomputation"
    )


def _reads_gradients(name: str, signatures: Signatures) -> bool:
    """Whether gradients leave the block by something it read: without, re-running it in backward has nothing to do."""
    return any(operand.meta.get("requires_grad", False) for operand in signatures.outside_operands(name))
