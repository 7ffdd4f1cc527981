"""Follows one curve of seconds over message sizes: which sizes, how often, and when it is known.

Sizes go up by factors of four until the bandwidth has settled, the memory or the time ends. Where the curve bends,
sizes between are added. Then all sizes are timed in turns, until each median is known or the time ends: what disturbs
the machine for a while slows all alike, and connections that settle into one pace, at which a size taken many times in
a row repeats itself, find another one. What was taken in a row counts only where there is no time for as much in turns.
The same decisions come out on every rank, since they see the same seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Timed = Callable[[Sequence[int]], tuple[Sequence[float], float]]
"""Times one message of each of the given bytes, in turn; returns their seconds, and those that all took together."""

_STEP = 4
_EXPLORING = 0.6
"""Part of the time that going up may take; the rest is for repetitions."""
_ALWAYS_BYTES = 1 << 16
"""Sizes up to this are measured however slow they are: a curve of fewer points says too little."""
_ALWAYS_PART = 0.1
"""A size that takes no more than this part of a curve's time is measured too: large messages tell the bandwidth."""
_SETTLED_FROM_BYTES = 1 << 20
"""Below, an equal bandwidth of two sizes is where one protocol passes to another, not the links' limit."""
_BENT = 0.2
_FEW = 2
"""Times the least repetitions, below which samples in turns may agree by chance: what slows them can last."""
_ERROR_OF_MEDIAN = 1.2533 / 1.349
"""Standard error of a median over the interquartile range, times the root of the number of samples.

Source: for normal samples, the median's error is sqrt(pi/2) = 1.2533 sigma / sqrt(n), and their quartiles are 1.349
sigma apart."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure, and how well."""

    seconds_per_curve: float
    least_repetitions: int
    most_repetitions: int
    known_within: float
    """Relative error of a median at which it is known."""
    settled_within: float
    """Change of bandwidth between sizes below which it has settled."""
    finer: bool
    """Whether to add sizes where the curve bends."""
    least_row_s: float = 0.04
    """Between processes, calls of one timing go on for so long. More than the few ms for which a busy host lets a
    process wait, which would else be the time of every small message, or of none; and than those by which ranks leave
    the one before it apart, which count as time of its first call."""


def follow_curve(timed: Timed, first_bytes: int, limit_bytes: int, effort: Effort) -> dict[int, list[float]]:
    """Returns the seconds of every repetition that counts by bytes, ascending.

    Args:
        timed: times messages.
        first_bytes: the smallest message.
        limit_bytes: the largest that fits.
        effort: how long to measure.
    """
    samples: dict[int, list[float]] = {}
    left_s = effort.seconds_per_curve
    size_bytes: int | None = first_bytes
    while size_bytes is not None:
        left_s -= _take(timed, [size_bytes] * effort.least_repetitions, samples)
        exploring_s = left_s - (1 - _EXPLORING) * effort.seconds_per_curve
        size_bytes = next_bytes(samples, limit_bytes, exploring_s, effort)
    for middle_bytes in bends(samples) if effort.finer else ():
        if left_s > 0:
            left_s -= _take(timed, [middle_bytes] * effort.least_repetitions, samples)
    in_turns: dict[int, list[float]] = {size_bytes: [] for size_bytes in sorted(samples)}
    while left_s > 0 and (unknown := unknown_sizes(in_turns, effort)):
        left_s -= _take(timed, unknown, in_turns)
    return {
        size_bytes: seconds if len(seconds) >= effort.least_repetitions else samples[size_bytes] + seconds
        for size_bytes, seconds in in_turns.items()
    }


def next_bytes(samples: Mapping[int, Sequence[float]], limit_bytes: int, left_s: float, effort: Effort) -> int | None:
    """Returns the next size up, or None where the curve is known, or would take more memory or time than is left."""
    largest = max(samples)
    following = largest * _STEP
    if following > limit_bytes or is_settled(samples, effort.settled_within):
        return None
    if following <= _ALWAYS_BYTES:
        return following
    # One call more, which warms up.
    takes_s = _STEP * statistics.median(samples[largest]) * (effort.least_repetitions + 1)
    return following if takes_s <= max(left_s, _ALWAYS_PART * effort.seconds_per_curve) else None


def is_settled(samples: Mapping[int, Sequence[float]], within: float) -> bool:
    """Tells whether the last two steps up have not changed the bandwidth, so that more of them would only repeat it."""
    largest = sorted(samples)[-3:]
    if len(largest) < 3 or largest[-1] < _SETTLED_FROM_BYTES:
        return False
    rates = [size_bytes / statistics.median(samples[size_bytes]) for size_bytes in largest]
    return all(abs(after / before - 1) <= within for before, after in pairwise(rates))


def bends(samples: Mapping[int, Sequence[float]]) -> tuple[int, ...]:
    """Returns sizes to add: those beside a point that its neighbours, but for noise, do not foretell by a line."""
    sizes = sorted(samples)
    seconds = [statistics.median(samples[size_bytes]) for size_bytes in sizes]
    added = []
    for index in range(1, len(sizes) - 1):
        part = (sizes[index] - sizes[index - 1]) / (sizes[index + 1] - sizes[index - 1])
        foretold = seconds[index - 1] + part * (seconds[index + 1] - seconds[index - 1])
        noise = max(spread(samples[size_bytes]) for size_bytes in sizes[index - 1 : index + 2])
        if abs(foretold / seconds[index] - 1) > max(_BENT, noise):
            added += [sizes[index - 1] * 2, sizes[index] * 2]
    return tuple(size_bytes for size_bytes in dict.fromkeys(added) if size_bytes not in samples)


def unknown_sizes(samples: Mapping[int, Sequence[float]], effort: Effort) -> list[int]:
    """Returns the sizes whose medians are not yet known well enough, ascending.

    Few samples can lie near each other by chance, so that there are some, and none counts as steadier than the curve
    mostly is.
    """
    spreads = {size_bytes: spread(seconds) for size_bytes, seconds in sorted(samples.items())}
    mostly = statistics.median(spreads.values())

    def is_known(size_bytes: int) -> bool:
        number, own = len(samples[size_bytes]), max(spreads[size_bytes], mostly)
        if number < _FEW * effort.least_repetitions:
            return False
        return number >= effort.most_repetitions or own * _ERROR_OF_MEDIAN / number**0.5 <= effort.known_within

    return [size_bytes for size_bytes in spreads if not is_known(size_bytes)]


def spread(seconds: Sequence[float]) -> float:
    """Returns the interquartile range over the median."""
    if len(seconds) < 2:
        return 0.0
    lower, _, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return (upper - lower) / statistics.median(seconds)


def _take(timed: Timed, sizes: Sequence[int], samples: dict[int, list[float]]) -> float:
    """Adds one sample for each of the sizes and returns the seconds that it took."""
    seconds, all_s = timed(sizes)
    for size_bytes, own_s in zip(sizes, seconds, strict=True):
        samples.setdefault(size_bytes, []).append(own_s)
    return all_s
