"""Fits the levels' bandwidths, start-ups and efficiencies to measured curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hw_profiles.schema import Algorithm, Curve, Level, Operation


@dataclass(frozen=True, slots=True)
class Fitted:
    """Levels with what the curves say of them."""

    levels: tuple[Level, ...]
    told: tuple[bool, ...]
    """Per level: whether any curve crosses it; the others keep the numbers that they came with."""
    median_error: float
    """Of the model's seconds against the points it was fitted to, relative."""


def fit_levels(
    levels: Sequence[Level], curves: Sequence[Curve], algorithms: Mapping[Operation, tuple[Algorithm, ...]]
) -> Fitted:
    """Returns the levels with the numbers that explain `curves` best, run by `algorithms`.

    Args:
        levels: inner first: names and sizes, and the numbers that stay where no curve tells.
        curves: measured seconds, all groups of a kind at once.
        algorithms: how each operation is run; `port` if not given.
    """
    del levels, curves, algorithms
    raise NotImplementedError
