"""Signatures: two modules with equal ones hold equal parameters and ran the same operators on the same shapes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from torch import fx

from planner.trace.record.recording import ModelFacts, Recording


class Signatures:
    """The signature of any module of a recorded model."""

    def __init__(self, facts: ModelFacts, recording: Recording) -> None:
        self._facts = facts
        self._parameter_index = {
            name: index
            for index, parameter in enumerate(facts.parameters)
            for name in (parameter.name, *parameter.aliases)
        }
        self._subtree: dict[str, list[str]] = {name: [] for name in facts.modules}
        for name in facts.modules:
            for ancestor in ancestors(name):
                if ancestor in self._subtree:
                    self._subtree[ancestor].append(name)
        self._nodes: dict[str, list[tuple[str, fx.Node]]] = {name: [] for name in facts.modules}
        for node in recording.graph.nodes:
            owner = node.meta.get("part_of", node)
            if node.op == "call_function" and owner.meta["phase"] == "forward":
                module = owner.meta["fqn"]
                for ancestor in ancestors(module):
                    if ancestor in self._nodes:
                        self._nodes[ancestor].append((module, node))

    def subtree(self, name: str) -> list[str]:
        """Returns the module and all modules beneath it, in the model's order."""
        return self._subtree[name]

    def parameters(self, name: str) -> list[int]:
        """Returns the indices of all parameters at and beneath the module, tied ones too."""
        return list(dict.fromkeys(i for part in self._subtree[name] for i in self._facts.modules[part].parameters))

    def num_operators(self, name: str) -> int:
        """Returns how many operators of forward ran at and beneath the module."""
        return len(self._nodes[name])

    def outside_operands(self, name: str) -> list[fx.Node]:
        """Returns the results of other modules that it read in forward, in order of use."""
        inside = {node for _, node in self._nodes[name]}
        found: dict[fx.Node, None] = {}
        for _, node in self._nodes[name]:
            for operand in node.all_input_nodes:
                if operand not in inside and operand.op == "call_function":
                    found.setdefault(operand)
        return list(found)

    def of(self, name: str) -> str:
        """Returns the signature of a module."""
        digest = hashlib.sha1(usedforsecurity=False)
        for part in self._subtree[name]:
            module = self._facts.modules[part]
            shapes = [(self._facts.parameters[i].shape, self._facts.parameters[i].trainable) for i in module.parameters]
            digest.update(f"{part[len(name) :]}:{module.type_name}:{shapes}\n".encode())
        inside: dict[fx.Node, int] = {}
        outside: dict[fx.Node, int] = {}
        for module_name, node in self._nodes[name]:
            inside[node] = len(inside)
            operands = [self._named(item, name, inside, outside) for item in (*node.args, *node.kwargs.values())]
            digest.update(f"{node.target}|{module_name[len(name) :]}|{operands}|{node.meta['out']}\n".encode())
        return digest.hexdigest()

    def _named(self, item: Any, prefix: str, inside: dict[fx.Node, int], outside: dict[fx.Node, int]) -> str:
        if isinstance(item, fx.Node):
            if item in inside:
                return f"%{inside[item]}"
            if item.meta.get("kind") in ("parameter", "buffer"):
                name = str(item.meta["name"])
                return name[len(prefix) :] if name.startswith(f"{prefix}.") else f"outside:{item.meta['out']}"
            number = outside.setdefault(item, len(outside))
            return f"@{number}:{item.meta['out']}:{item.meta.get('requires_grad', False)}"
        if isinstance(item, list | tuple):
            return str([self._named(entry, prefix, inside, outside) for entry in item])
        return repr(item)


def ancestors(name: str) -> Iterable[str]:
    """Yields the module's name, those of the modules around it, and last the root's, ""."""
    while name:
        yield name
        name = name.rpartition(".")[0]
    yield ""
