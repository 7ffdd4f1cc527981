"""Keeps what a model's file sets for the whole process to the trace of that model."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch


@contextmanager
def left_as_it_was() -> Iterator[None]:
    """After, gradients, the default type and device, and the state of random numbers are what they were before."""
    is_enabled, dtype, device = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_default_device()
    states = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_grad_enabled(is_enabled)
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(device)
        random.setstate(states[0])
        numpy.random.set_state(states[1])
        torch.set_rng_state(states[2])


def seed(number: int) -> None:
    """Makes Python's random numbers those of this seed, and numpy's always the same.

    Each run of a trace has another number: a model that lets Python's random numbers decide what runs is found out, by
    every trace alike. numpy's choose what is masked, which shall be as much in all runs.
    """
    random.seed(number)
    numpy.random.seed(0)
