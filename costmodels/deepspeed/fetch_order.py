"""The order in which DeepSpeed's stage 3 has recorded fetches, and what of it comes again how soon."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from costmodels.deepspeed.hooks import Hook
from costmodels.workload import Workload


class Traversal:
    """Where each parameter comes next among the modules of the recorded order."""

    def __init__(self, modules: Sequence[tuple[int, ...]], elements: list[int]) -> None:
        sizes = (sum(elements[parameter] for parameter in parameters) for parameters in modules)
        self.traversed = [0, *accumulate(sizes)]
        self.uses: dict[int, list[int]] = {}
        for step, parameters in enumerate(modules):
            for parameter in parameters:
                self.uses.setdefault(parameter, []).append(step)

    def is_reused(self, parameter: int, step: int, distance: int) -> bool:
        """Whether `parameter` is used at `step` or later, fewer than `distance` elements on."""
        uses = self.uses.get(parameter, [])
        index = bisect_left(uses, step)
        return (
            index < len(uses)
            and self.traversed[uses[index]] - self.traversed[min(step, len(self.traversed) - 1)] < distance
        )


class FetchOrder:
    """The recorded order of fetches, as the two kinds of modules see it that release parameters.

    A leaf, gathered whole, counts with every other module all that is beneath it; any other module counts what a
    module owns or asks for itself, which of a leaf is mostly nothing.
    Source: `__params_to_release`, deepspeed/runtime/zero/partitioned_param_coordinator.py, 0.19.8.
    """

    def __init__(self, workload: Workload, order: Iterable[Hook], elements: list[int]) -> None:
        hooks = [hook for hook in order if hook.kind == "fetch"]
        names = [(parameter.name, *parameter.aliases) for parameter in workload.parameters]

        def owned(hook: Hook) -> tuple[int, ...]:
            return tuple(p for p in hook.parameters if any(n.rpartition(".")[0] == hook.module for n in names[p]))

        def beneath(hook: Hook) -> tuple[int, ...]:
            prefix = f"{hook.module}." if hook.module else ""
            found = (index for index, own in enumerate(names) if any(name.startswith(prefix) for name in own))
            return tuple(dict.fromkeys((*hook.parameters, *found)))

        self.fetches = [hook.parameters for hook in hooks]
        self.of_module = Traversal([owned(hook) if hook.is_leaf else hook.parameters for hook in hooks], elements)
        has_leaves = any(hook.is_leaf for hook in hooks)
        self.of_leaf = Traversal([beneath(hook) for hook in hooks], elements) if has_leaves else self.of_module
