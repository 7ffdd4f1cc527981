"""How long to measure what: the time is given, and the more there is to measure, the less each gets of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from costmodels.degrees import legal_degrees, nested_pairs
from hw_profiles.measure.follow_curve import Effort
from hw_profiles.schema import Operation

_MANY_RANKS = 16
"""Above this, a quick measurement leaves out the degrees inside and between levels: communicators are slow to make."""
_QUICK_CURVES_S, _FULL_CURVES_S = 27.0, 1800.0
_QUICK_PAIRS_S, _FULL_PAIRS_S = 3.0, 60.0
_LEAST_PER_PAIR_S, _MOST_PER_PAIR_S = 0.01, 0.3


def kinds_to_time(sizes: Sequence[int], quick: bool) -> tuple[tuple[int, int], ...]:
    """Returns the kinds of group to time on levels of these sizes: all that the search space has."""
    degrees: Sequence[int] = legal_degrees(sizes)
    edges = tuple(accumulate(sizes, lambda inner, size: inner * size))
    if quick and edges[-1] > _MANY_RANKS:
        degrees = sorted({1, *edges})
    return nested_pairs(degrees)


def effort_per_curve(quick: bool, num_curves: int) -> Effort:
    """Returns the effort for each of `num_curves` curves."""
    each = max(num_curves, 1)
    if quick:
        return Effort(
            seconds_per_curve=min(max(_QUICK_CURVES_S / each, 0.25), 1.5),
            least_repetitions=3,
            most_repetitions=30,
            known_within=0.05,
            settled_within=0.1,
            finer=False,
        )
    return Effort(
        seconds_per_curve=min(max(_FULL_CURVES_S / each, 1.0), 20.0),
        least_repetitions=5,
        most_repetitions=100,
        known_within=0.02,
        settled_within=0.05,
        finer=True,
        least_row_s=0.15,
    )


def seconds_per_pair(quick: bool, num_pairs: int) -> float:
    """Returns the seconds for each of `num_pairs` pairs of ranks."""
    all_s = _QUICK_PAIRS_S if quick else _FULL_PAIRS_S
    return min(max(all_s / max(num_pairs, 1), _LEAST_PER_PAIR_S), _MOST_PER_PAIR_S)


def seconds_per_device_piece(quick: bool) -> float:
    """Returns what one piece about a device is likely to take."""
    return 0.6 if quick else 3.0


def planned_s(sizes: Sequence[int], num_pairs: int, quick: bool, operations: Sequence[Operation]) -> float:
    """Returns what everything is likely to take on levels of these sizes: for the progress."""
    num_curves = len(kinds_to_time(sizes, quick)) * len(operations)
    device_s = 9 * seconds_per_device_piece(quick)
    pairs_s = num_pairs * seconds_per_pair(quick, num_pairs)
    return device_s + pairs_s + num_curves * effort_per_curve(quick, num_curves).seconds_per_curve
