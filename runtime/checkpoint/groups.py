"""The options of an optimizer's parameter groups: learning rates, decays and the like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from runtime.checkpoint.ranges import on_host
from runtime.ranks import LaunchError

_OWN = ("params", "foreach", "fused", "capturable", "differentiable")
"""How an optimizer computes, not what: its own on every machine."""


def options_of(optimizer: Optimizer, name_of: Callable[[Tensor], str]) -> list[dict[str, Any]]:
    """Returns the options of each group, with the names of its parameters as `params`."""
    return [
        {key: on_host(value) for key, value in group.items() if key not in _OWN}
        | {"params": [name_of(each) for each in group["params"]]}
        for group in optimizer.param_groups
    ]


def refuse_other_groups(own: Sequence[dict[str, Any]], saved: Sequence[dict[str, Any]]) -> None:
    """Refuses a checkpoint whose groups have other parameters.

    Raises:
        LaunchError: Which group has.
    """
    if len(own) != len(saved):
        raise LaunchError(
            f"the checkpoint has {len(saved)} parameter groups, this optimizer {len(own)}: make it with the same groups"
        )
    for number, (ours, theirs) in enumerate(zip(own, saved, strict=True)):
        wrong = sorted({*ours["params"]} ^ {*theirs["params"]})
        if wrong:
            raise LaunchError(
                f"the parameter group {number} of the checkpoint and that of this optimizer differ in {wrong[0]}"
                + (f" and {len(wrong) - 1} more parameters" if len(wrong) > 1 else "")
                + ": make the optimizer with the same groups"
            )


def set_options(optimizer: Optimizer, saved: Sequence[dict[str, Any]]) -> None:
    """Gives each group the saved options."""
    for group, options in zip(optimizer.param_groups, saved, strict=True):
        group.update({key: value for key, value in options.items() if key not in _OWN})
