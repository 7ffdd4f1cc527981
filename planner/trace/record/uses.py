"""Notes how the model uses its parameters where the operators do not tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import fx, nn

from planner.trace.record.module_calls import ModuleCalls


class Uses:
    """The parameters that modules were asked for, and those of linear operators, so far."""

    def __init__(self, calls: ModuleCalls) -> None:
        self._calls = calls
        self.accesses: dict[tuple[int, str], None] = {}
        """(call, parameter) in order of time."""
        self.linears: dict[tuple[str, str], None] = {}
        """(weight, bias) in order of time."""
        self.linear_weights: set[str] = set()
        """Those of linear operators, with or without a bias."""

    @contextmanager
    def noting(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """While on, uses are noted."""
        plain = {module: module._parameters for module in modules}
        for module, parameters in plain.items():
            module._parameters = _Noting(parameters, self._note_access)
        try:
            with patch.object(nn.functional, "linear", self._noting_linear(nn.functional.linear)):
                yield
        finally:
            for module, parameters in plain.items():
                module._parameters = parameters

    def _note_access(self, parameter: Any) -> None:
        name = _parameter_name(parameter)
        if name is not None and torch._C._current_graph_task_id() == -1:
            self.accesses[self._calls.current, name] = None

    def _noting_linear(self, linear: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def noted(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:  # noqa: A002 - torch's name
            names = _parameter_name(weight), _parameter_name(bias)
            if names[0] is not None:
                self.linear_weights.add(names[0])
            if names[0] is not None and names[1] is not None and not self._calls.is_given_twice(input):
                self.linears[names[0], names[1]] = None
            return linear(input, weight, bias)

        return noted


class _Noting(dict[str, Any]):
    """A module's parameters, which tell when one is asked for by its name."""

    def __init__(self, parameters: dict[str, Any], note: Callable[[Any], None]) -> None:
        super().__init__(parameters)
        self._note = note

    def __getitem__(self, name: str) -> Any:
        parameter = super().__getitem__(name)
        self._note(parameter)
        return parameter


def _parameter_name(tensor: Any) -> str | None:
    node: fx.Node | None = getattr(tensor, "_trace_node", None)
    return str(node.meta["name"]) if node is not None and node.meta.get("kind") == "parameter" else None
