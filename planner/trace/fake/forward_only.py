"""Keeps a model's forward to forward: a model that trains itself leaves nothing to plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn


class SelfTrainingError(Exception):
    """The model called backward, or an optimizer's step, in its own forward."""


@contextmanager
def forward_only(module: nn.Module) -> Iterator[None]:
    """While open, backward and an optimizer's step raise `SelfTrainingError` inside the forward of `module`."""
    is_inside = False

    def enter(*_: Any) -> None:
        nonlocal is_inside
        is_inside = True

    def leave(*_: Any) -> None:
        nonlocal is_inside
        is_inside = False

    def guarded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if is_inside and torch._C._current_graph_task_id() == -1:
                raise SelfTrainingError(f"forward calls {name}")
            return function(*args, **kwargs)

        return called

    hooks = [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.Tensor, "backward", guarded(torch.Tensor.backward, "backward()")))
        stack.enter_context(patch.object(torch.autograd, "backward", guarded(torch.autograd.backward, "backward()")))
        for kind in _optimizers():
            stack.enter_context(patch.object(kind, "step", guarded(kind.step, f"{kind.__name__}.step()")))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _optimizers() -> list[type[torch.optim.Optimizer]]:
    """Returns all classes of optimizers that have a step of their own, in the order in which they were defined."""
    found: list[type[torch.optim.Optimizer]] = []
    waiting = [torch.optim.Optimizer]
    while waiting:
        kind = waiting.pop(0)
        if "step" in vars(kind):
            found.append(kind)
        waiting += kind.__subclasses__()
    return list(dict.fromkeys(found))
