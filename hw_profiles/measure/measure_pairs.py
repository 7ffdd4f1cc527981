"""Measures what ranks send each other one by one, a piece for each that sends. Runs on every rank."""

from __future__ import annotations

from collections.abc import Sequence

from hw_profiles.measure.effort import seconds_per_pair
from hw_profiles.measure.pieces import Pieces
from hw_profiles.measure.ranks import Ranks
from hw_profiles.measure.time_pairs import time_pairs
from hw_profiles.schema import Pair


def measure_pairs(ranks: Ranks, pieces: Pieces, pairs: Sequence[tuple[int, int]], quick: bool) -> tuple[Pair, ...]:
    """Returns the measured pairs, by the rank that sends."""
    each_s = seconds_per_pair(quick, len(pairs))
    found: list[Pair] = []
    for source in sorted({source for source, _ in pairs}):
        own = [pair for pair in pairs if pair[0] == source]

        def measured(own: list[tuple[int, int]] = own) -> list[object]:
            return [pair.model_dump(mode="json") for pair in time_pairs(own, ranks, each_s)]

        values = pieces.take(
            f"pairs from {source}",
            f"messages from rank {source} to {len(own)} others, one by one",
            each_s * len(own),
            measured,
        )
        found += [Pair.model_validate(value) for value in values]
    return tuple(found)
