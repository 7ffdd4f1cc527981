"""Recomputation: chosen modules keep their inputs only, and run their forward again in backward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
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
        return checkpoint(functools.partial(forward, **options), *arguments, use_reentrant=False, early_stop=False)

    return run
