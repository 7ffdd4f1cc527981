"""Which optimizers can run on slices of parameters."""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer

from runtime.ranks import LaunchError

ELEMENTWISE = frozenset(
    {"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
)
"""Optimizers of torch 2.13 that update each element from its own gradient and states alone."""

_REFUSED = {
    "Adafactor": "its states are sums over rows and columns of a parameter, which a rank has only pieces of",
    "LBFGS": "it needs several evaluations of the whole model, and inner products of whole gradients",
    "Muon": "it orthogonalizes whole matrices, which a rank has only pieces of",
    "SparseAdam": "gradients that are reduced between ranks are dense",
}


def check_elementwise(make: Callable[..., Optimizer], elementwise: bool | None) -> None:
    """Refuses optimizers whose update of an element needs others that another rank has.

    Args:
        make: An optimizer's class.
        elementwise: What the user knows of it; None: nothing.

    Raises:
        LaunchError: It is not elementwise, or not known to be.
    """
    name = getattr(make, "__name__", str(make))
    if elementwise or (elementwise is None and name in ELEMENTWISE):
        return
    reason = _REFUSED.get(name, "it is not known to update each element by itself; if it does, give elementwise=True")
    raise LaunchError(
        f"optimizer {name} cannot run on sharded optimizer states: {reason}. Use AdamW, Adam or SGD, or plan with "
        "--engine deepspeed"
    )
