"""Recomputation: chosen modules keep their inputs only, and run their forward again in backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint


def recompute(model: nn.Module, modules: Sequence[str]) -> None:
    """Makes each named module of `model` save its inputs and its random state only, and run again in backward.

    Call it before `deepspeed.initialize`. Only the bound `forward` is replaced: names of modules and parameters, and
    the hooks on the module itself, stay as they were; hooks of its children run again in backward. With DeepSpeed's
    stage 3 that gathers the children's parameters anew, and the module's own ones are gathered by its backward hook.

    Non-reentrant checkpointing is used. Both kinds give the losses of an unwrapped model under DeepSpeed 0.19.8 at
    stages 0 to 3 and with a secondary partition, but the reentrant one sees no gradient through keyword arguments
    and needs an input that requires one.

    Args:
        model: The model, before any engine wraps it.
        modules: Module paths as `model.named_modules()` gives them.

    Raises:
        AttributeError: A module of that name does not exist.
    """
    for name in modules:
        module = model.get_submodule(name)
        module.forward = _recomputed(module.forward)


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def run(*arguments: Any, **options: Any) -> Any:
        # Stopping early would leave children in the middle of their forward, without the hook by which stage 3
        # releases their parameters and pops its stack of running modules.
        return checkpoint(
            functools.partial(_anchored, forward, **options), *arguments, use_reentrant=False, early_stop=False
        )

    return run


def _anchored(forward: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Calls `forward` and makes its recomputation the first thing that backward does inside it.

    Otherwise backward may first run the hook of the last child, and only then, at that child's saved tensors, the
    recomputation: stage 3 would gather the child's parameters for its backward, release them at the end of its second
    forward, and find them empty when their gradient arrives.
    """
    return tree_map_only(torch.Tensor, _anchor, forward(*arguments, **options))


def _anchor(output: torch.Tensor) -> Any:
    return _Anchor.apply(output) if output.requires_grad else output  # type: ignore[no-untyped-call]


class _Anchor(torch.autograd.Function):
    """The identity, with a saved tensor of no elements: to unpack it is to recompute."""

    @staticmethod
    def forward(context: Any, output: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(output.new_empty(0))
        return output.detach()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        _ = context.saved_tensors
        return gradient
