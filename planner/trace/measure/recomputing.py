"""Recomputes blocks of a fake model in the way the launcher does in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from runtime.recompute import recompute


@contextmanager
def recomputing(model: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """While open, each named module keeps its inputs only, and runs its forward again in backward."""
    modules = [model.get_submodule(name) for name in names]
    # A module may have a forward of its own already, in place of its class's.
    before = [vars(module).get("forward") for module in modules]
    recompute(model, names)
    try:
        yield
    finally:
        for module, forward in zip(modules, before, strict=True):
            del module.forward
            if forward is not None:
                module.forward = forward
