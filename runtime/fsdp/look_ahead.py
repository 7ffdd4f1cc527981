"""Gathers blocks ahead: each as the block so many places before it begins, in forward and in backward.

So it is the same whether the blocks before it are gathered or not: a block's gather neither starts earlier because
those before it are whole on every rank, nor later. FSDP2 does it for blocks that it gathers; others are hooked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from torch import Tensor
from torch._C import _current_graph_task_id
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
from torch.utils._pytree import tree_leaves

from runtime.fsdp.unit import Unit


class LookAhead:
    """Knows what is gathered with the beginning of each block, once the first forward has shown their order."""

    def __init__(self) -> None:
        self._forward: dict[Unit, list[Unit]] = {}
        """For blocks that are whole, those to gather with their forward."""
        self._backward: dict[Unit, list[Unit]] = {}

    def learn(self, forward: Sequence[Unit], backward: Sequence[Unit], depth: int) -> Mapping[Unit, Sequence[Unit]]:
        """Takes the orders, and returns for each block those whose gathers start with its forward.

        Args:
            forward: Blocks in the order in which they began.
            backward: Those through which gradients flow, in the order in which they are to begin.
            depth: Blocks that are gathered ahead of the running one.
        """
        ahead = {unit: _gathered(forward[place + 1 : place + 1 + depth]) for place, unit in enumerate(forward)}
        behind = {unit: _gathered(backward[place + 1 : place + 1 + depth]) for place, unit in enumerate(backward)}
        for unit in forward:
            if _gathered([unit]):
                _module(unit).set_modules_to_forward_prefetch([_module(each) for each in ahead[unit]])
                _module(unit).set_modules_to_backward_prefetch([_module(each) for each in behind.get(unit, ())])
            else:
                self._forward[unit], self._backward[unit] = ahead[unit], behind.get(unit, [])
        return ahead

    def before_forward(self, unit: Unit) -> None:
        """Starts what is gathered with the forward of a block that is whole; not when it is recomputed."""
        if self._forward.get(unit) and _current_graph_task_id() == -1:
            _start(self._forward[unit], "forward")

    def after_forward(self, unit: Unit, output: Any) -> None:
        """Has the backward of a block that is whole start what is gathered with it."""
        behind = self._backward.get(unit)
        if behind:
            before_backward(output, lambda: _start(behind, "backward"))


def before_backward(output: Any, begin: Callable[[], None]) -> None:
    """Calls `begin` when the backward comes to each tensor that a module returned."""
    for tensor in tree_leaves(output):
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            tensor.register_hook(lambda _: begin())  # type: ignore[no-untyped-call]


def differentiated(output: Any) -> bool:
    """Returns whether a gradient flows through what a module returned."""
    return any(isinstance(each, Tensor) and each.requires_grad for each in tree_leaves(output))


def _start(units: Sequence[Unit], phase: Literal["forward", "backward"]) -> None:
    for unit in units:
        # Whose backward is over already needs no parameters any more.
        if unit.group._training_state != TrainingState.POST_BACKWARD:
            unit.group._prefetch_unshard(unit.group, phase)


def _gathered(units: Sequence[Unit]) -> list[Unit]:
    """Returns the blocks that are gathered as they come to run."""
    return [unit for unit in units if unit.group is not None and not unit.is_held]


def _module(unit: Unit) -> FSDPModule:
    return cast(FSDPModule, unit.modules[0])
