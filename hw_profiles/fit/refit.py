"""Fits a profile anew to other curves."""

from __future__ import annotations

from collections.abc import Sequence

from hw_profiles.fit.fit_levels import fit_levels
from hw_profiles.schema import Curve, HardwareProfile


def refit(profile: HardwareProfile, curves: Sequence[Curve]) -> HardwareProfile:
    """Returns `profile` with `curves` in place of its own, and its levels fitted to them; sources stay.

    A level that no curve crosses keeps its numbers.
    """
    fitted = fit_levels(profile.levels, curves, profile.algorithms)
    return profile.model_copy(
        update={
            "curves": tuple(curves),
            "levels": fitted.levels,
            "calls_s": fitted.calls_s,
            "startups_hidden": fitted.startups_hidden,
        }
    )
