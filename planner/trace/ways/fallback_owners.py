"""Which module an operator belongs to, where only the parameters that operators use tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from torch import fx

from costmodels.workload import Parameter


class Owners:
    """Finds the owners of operators, asked for in order of execution.

    An operator of forward that uses a parameter belongs to the module of that parameter, and the operators after it
    too. One of backward belongs to the module of the parameter that it uses or makes the gradient of, or else to that
    of what it reads of forward.
    """

    def __init__(
        self, parameters: Sequence[Parameter], modules: Collection[str], placeholders: Mapping[fx.Node, int]
    ) -> None:
        """Takes the parameters, the names of the modules, and which of the parameters each placeholder is."""
        # A module that the model holds several times is known by its first name alone.
        self._names = {
            node: tuple(
                name
                for name in (parameters[index].name, *parameters[index].aliases)
                if name.rpartition(".")[0] in modules
            )
            for node, index in placeholders.items()
        }
        self._num_uses: Counter[fx.Node] = Counter()
        self._owner: dict[fx.Node, str] = {}
        self._of_parameter: dict[fx.Node, bool] = {}
        self._current = ""

    def forward(self, node: fx.Node, is_view: bool) -> str:
        """Returns the module of an operator of forward."""
        used = [operand for operand in node.all_input_nodes if self._is_parameter(operand)]
        if used:
            self._current = self._owner[used[-1]] if used[-1] in self._owner else self._next_name(used[-1])
        # A view of a parameter, such as its transpose, stands for the parameter.
        self._of_parameter[node] = is_view and bool(used)
        self._owner[node] = self._current
        return self._current

    def backward(self, node: fx.Node, is_view: bool, gradient_of: str | None) -> str:
        """Returns the module of an operator of backward, which makes the gradient of the parameter of that name."""
        operands = node.all_input_nodes
        used = [operand for operand in operands if self._is_parameter(operand)]
        read = [operand for operand in operands if operand in self._owner]
        if used:
            self._current = self._owner[used[-1]] if used[-1] in self._owner else self._last_name(used[-1])
        elif gradient_of is not None:
            self._current = gradient_of.rpartition(".")[0]
        elif read:
            self._current = self._owner[read[-1]]
        self._of_parameter[node] = is_view and bool(used)
        if self._of_parameter[node]:
            self._owner[node] = self._current
        return self._current

    def recomputed(self, node: fx.Node, is_view: bool) -> str:
        """Returns the module of an operator of forward that runs again in backward."""
        used = [operand for operand in node.all_input_nodes if self._is_parameter(operand)]
        if used:
            names = self._names.get(used[-1])
            self._current = names[0].rpartition(".")[0] if names else self._owner[used[-1]]
        self._of_parameter[node] = is_view and bool(used)
        self._owner[node] = self._current
        return self._current

    def _is_parameter(self, node: fx.Node) -> bool:
        return node in self._names or self._of_parameter.get(node, False)

    def _next_name(self, placeholder: fx.Node) -> str:
        """The n-th use of a tied parameter is taken for that under its n-th name."""
        names = self._names[placeholder]
        position = min(self._num_uses[placeholder], len(names) - 1)
        self._num_uses[placeholder] += 1
        return names[position].rpartition(".")[0]

    def _last_name(self, placeholder: fx.Node) -> str:
        """Backward meets the uses in reverse."""
        names = self._names[placeholder]
        position = min(max(self._num_uses[placeholder] - 1, 0), len(names) - 1)
        self._num_uses[placeholder] = max(self._num_uses[placeholder] - 1, 0)
        return names[position].rpartition(".")[0]
