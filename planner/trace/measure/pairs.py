"""Finds what a step computes over pairs of samples: it grows with the square of the micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from planner.trace.record.recording import Recording

Result = tuple[str, tuple[int, ...]]
"""The module and the shape of one tensor that an operator of forward made."""


def results(recording: Recording) -> list[Result]:
    """Returns the results of forward in order of time."""
    found = []
    for node in recording.graph.nodes:
        out = node.meta.get("out")
        is_one = isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], torch.dtype)
        if node.op == "call_function" and is_one and node.meta.get("phase") == "forward":
            found.append((node.meta["fqn"], out[0]))
    return found


def pairs_of_samples(small: Sequence[Result], large: Sequence[Result]) -> list[str]:
    """Returns a sentence for each module with a result of which two axes grow with the micro-batch.

    Args:
        small: Of a step at one micro-batch.
        large: Of the same with one sample more.
    """
    found: dict[str, tuple[int, ...]] = {}
    for (module, shape), (_, other) in zip(small, large, strict=False):
        if len(shape) == len(other) and sum(one != two for one, two in zip(shape, other, strict=True)) > 1:
            found.setdefault(module, shape)
    return [
        f"{module or 'the model itself'} computes over pairs of samples (a tensor of {' x '.join(map(str, shape))}): "
        "that grows with the square of the micro-batch, and is counted as if it grew on evenly from 2 samples to 3"
        for module, shape in found.items()
    ]
