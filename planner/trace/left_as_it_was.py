"""Keeps what a model's file sets for the whole process to the trace of that model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def left_as_it_was() -> Iterator[None]:
    """After, gradients, the default type and device, and the state of random numbers are what they were before."""
    is_enabled, dtype, device = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_default_device()
    python_state, torch_state = random.getstate(), torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_grad_enabled(is_enabled)
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(device)
        random.setstate(python_state)
        torch.set_rng_state(torch_state)


def seed(number: int) -> None:
    """Makes the random numbers of Python and torch those of this seed.

    Each run of a trace has another: a model whose random numbers decide what runs is found out, by every trace alike.
    """
    random.seed(number)
    torch.manual_seed(number)
